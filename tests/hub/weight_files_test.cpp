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
    EXPECT_EQ(files.find("b")->shape, Shape{3});
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
  expect_refused(scratch.path(),
                 "there is none of model.safetensors, model.safetensors.index.json, "
                 "pytorch_model.bin, pytorch_model.bin.index.json");
  write_shards(scratch);
  std::filesystem::remove(scratch / "model-00002-of-00002.safetensors");
  expect_refused(scratch.path(),
                 "names 'model-00002-of-00002.safetensors', which is not there: is the download");
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens" / name;
}

std::vector<float> all_of(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
  tensor.read(0, values);
  return values;
}

// The same model by PyTorch, in two files with an index, and by safetensors.
TEST(WeightFiles, ReadsWhatTorchSaveWrote) {
  WeightFiles expected(golden("qwen2_window_tiny"));
  const std::filesystem::path torch = golden("torch_files/qwen2_window_tiny");
  for (const auto& path : {torch, torch / "pytorch_model.bin.index.json"}) {
    WeightFiles files(path);
    ASSERT_EQ(files.tensors().size(), expected.tensors().size());
    for (const auto& [name, tensor] : expected.tensors()) {
      ASSERT_NE(files.find(name), nullptr) << name;
      EXPECT_EQ(files.find(name)->to_string(), tensor.to_string());
      EXPECT_EQ(all_of(*files.find(name)), all_of(tensor)) << name;
    }
  }
}

TEST(WeightFiles, KnowsFilesOfTorchSaveByTheirContent) {
  const std::filesystem::path file = golden("torch_files/plain.pt");
  ScratchDirectory scratch;
  for (const char* name : {"pytorch_model.bin", "weights.pth", "weights"}) {
    std::filesystem::copy(file, scratch / name);
    EXPECT_EQ(WeightFiles(scratch / name).find("f16")->to_string(), "f16 [3]");
  }
  EXPECT_NE(WeightFiles(scratch.path()).find("f16"), nullptr);
  WeightFile safe;
  safe.add("safe", {1});
  safe.write(scratch / "model.safetensors");
  EXPECT_NE(WeightFiles(scratch.path()).find("safe"), nullptr) << "it goes before the other";
  make_file(scratch / "text.bin", "text");
  expect_refused(scratch / "text.bin", "text.bin' is no file of torch.save");
}

TEST(WeightFiles, ReadsViewsInTheOrderOfTheirShape) {
  WeightFiles files(golden("torch_files/plain.pt"));
  EXPECT_EQ(all_of(*files.find("transposed")), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(all_of(*files.find("expanded")), (std::vector<float>{1.5, -2.5, 1.5, -2.5, 1.5, -2.5}));
  std::vector<float> part(3);
  files.find("transposed")->read(2, part);
  EXPECT_EQ(part, (std::vector<float>{1, 4, 2}));
  for (const auto& [name, tensor] : files.tensors()) {
    for (Advice advice : {Advice::kSoon, Advice::kDone}) {
      if (tensor.dtype) tensor.advise(0, num_elements(tensor.shape), advice);
    }
  }
}

TEST(WeightFiles, RunsNothingOfAPickle) {
  for (const char* name : {"os_system_2.pt", "eval_4.pt"}) {
    ScratchDirectory scratch;
    std::filesystem::copy(golden("torch_files/hostile") / name, scratch / "pytorch_model.bin");
    expect_refused(scratch.path(), "pytorch_model.bin' asks for the Python object '");
    expect_refused(scratch.path(), "nothing of it was run");
    EXPECT_EQ(names_in(scratch.path()), Names{"pytorch_model.bin"});
  }
  expect_refused(golden("torch_files/before_1_6.bin"), "the form that torch.save wrote before");
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
