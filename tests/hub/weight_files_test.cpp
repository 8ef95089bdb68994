#include "hub/weight_files.h"

#include "base/error.h"
#include "hub/weight_index.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

// Two shards with one tensor each and their index.
void write_shards(const ScratchDirectory& scratch) {
  WeightFile first, second;
  first.add("a", {2});
  second.add("b", {3});
  first.write(scratch / "model-00001-of-00002.safetensors");
  second.write(scratch / "model-00002-of-00002.safetensors");
  make_file(scratch / kWeightIndexName,
            weight_index_json({{"a", "model-00001-of-00002.safetensors"},
                               {"b", "model-00002-of-00002.safetensors"}},
                              20));
}

std::string error_of(const std::filesystem::path& path) {
  return user_error([&] { WeightFiles files(path); });
}

void expect_refused(const std::filesystem::path& path, const std::string& reason) {
  std::string message = error_of(path);
  expect_contains(message, reason);
}

TEST(WeightFiles, AreOneFileOrShardsOrAnIndex) {
  ScratchDirectory scratch;
  write_shards(scratch);
  for (const auto& path : {scratch.path(), scratch / kWeightIndexName}) {
    WeightFiles files(path);
    EXPECT_EQ(files.tensors().size(), 2u);
    ASSERT_NE(files.find("b"), nullptr);
    EXPECT_EQ(files.find("b")->info->shape, Shape{3});
    EXPECT_EQ(files.find("c"), nullptr);
  }
  WeightFile one;
  one.add("whole", {1});
  one.write(scratch / "model.safetensors");
  EXPECT_NE(WeightFiles(scratch.path()).find("whole"), nullptr) << "it goes before the index";
  EXPECT_NE(WeightFiles(scratch / "model-00001-of-00002.safetensors").find("a"), nullptr);
}

TEST(WeightFiles, SaysWhatIsMissing) {
  ScratchDirectory scratch;
  expect_refused(scratch / "nowhere", "there are no weights: no '");
  expect_refused(scratch.path(), "neither model.safetensors nor model.safetensors.index.json");
  write_shards(scratch);
  std::filesystem::remove(scratch / "model-00002-of-00002.safetensors");
  expect_refused(scratch.path(),
                 "names 'model-00002-of-00002.safetensors', which is not there: is the download");
}

TEST(WeightFiles, NeverOpensPickledFiles) {
  ScratchDirectory scratch;
  make_file(scratch / "pytorch_model.bin");
  for (const auto& path : {scratch.path(), scratch / "pytorch_model.bin"}) {
    expect_refused(path, "pytorch_model.bin' is a pickled file, which is not read");
    expect_contains(error_of(path), "save_pretrained");
  }
}

TEST(WeightFiles, PointsToExportForACheckpoint) {
  ScratchDirectory scratch;
  std::filesystem::path checkpoint = save(scratch.path(), 3);
  expect_refused(checkpoint, "is a checkpoint of tessera: `tessera export ");
}

TEST(WeightFiles, RefusesAnIndexThatDisagreesWithItsFiles) {
  ScratchDirectory scratch;
  write_shards(scratch);
  std::filesystem::path index = scratch / kWeightIndexName;
  make_file(index, weight_index_json({{"a", "model-00002-of-00002.safetensors"}}, 20));
  expect_refused(scratch.path(),
                 "says that tensor 'a' is in 'model-00002-of-00002.safetensors': it is not");
  make_file(index, weight_index_json({{"a", "../model-00001-of-00002.safetensors"}}, 20));
  expect_refused(scratch.path(), "a file of the same directory");
  WeightFile twin;
  twin.add("a", {2});
  twin.write(scratch / "model-00002-of-00002.safetensors");
  make_file(index, weight_index_json({{"a", "model-00001-of-00002.safetensors"},
                                      {"b", "model-00002-of-00002.safetensors"}},
                                     20));
  expect_refused(scratch.path(), "tensor 'a' is both in '");
}

TEST(WeightFiles, RefusesATruncatedFile) {
  ScratchDirectory scratch;
  WeightFile file;
  file.add("a", {100});
  std::filesystem::path path = scratch / "model.safetensors";
  file.write(path);
  auto size = std::filesystem::file_size(path);
  for (uintmax_t left : {uintmax_t{0}, uintmax_t{7}, uintmax_t{40}, size - 1}) {
    std::filesystem::resize_file(path, left);
    expect_refused(scratch.path(), "is not a valid safetensors file");
    file.write(path);
  }
}

}  // namespace
}  // namespace tessera
