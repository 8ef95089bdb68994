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

// Two parts of a Llama: rows of q and k in another order, matrices cut by rows or by columns.
TEST(WeightFiles, JoinsThePartsOfMetasOwnFiles) {
  WeightFiles expected(golden("ministral_tiny"));
  const std::filesystem::path columns = golden("torch_files/consolidated_columns");
  for (const auto& path : {columns, columns / "consolidated.00.pth"}) {
    WeightFiles files(path);
    EXPECT_EQ(files.tensors().size(), expected.tensors().size());
    EXPECT_EQ(files.find("model.embed_tokens.weight")->shape, (Shape{100, 32}));
    for (const auto& [name, tensor] : expected.tensors()) {
      const StoredTensor* joined = files.find(name);
      ASSERT_NE(joined, nullptr) << name;
      std::vector<float> all = all_of(tensor), got = all_of(*joined);
      bool cut_off = name == "model.embed_tokens.weight" || name == "lm_head.weight";
      if (cut_off) all.resize(100 * 32);
      EXPECT_EQ(got, all) << name;
      // Any part of it, across pieces.
      for (size_t first = 0; first < all.size(); first += 397) {
        std::vector<float> part(std::min<size_t>(500, all.size() - first));
        joined->read(static_cast<int64_t>(first), part);
        ASSERT_TRUE(
            std::equal(part.begin(), part.end(), all.begin() + static_cast<ptrdiff_t>(first)))
            << name << first;
        joined->advise(static_cast<int64_t>(first), static_cast<int64_t>(part.size()),
                       Advice::kDone);
      }
    }
  }
  WeightFiles rows(golden("torch_files/consolidated_rows"));
  EXPECT_EQ(rows.tensors().size(), 3u);
  for (const auto& [name, tensor] : rows.tensors()) {
    std::vector<float> all = all_of(*expected.find(name)), got = all_of(tensor);
    all.resize(got.size());
    EXPECT_EQ(got, all) << name;
  }
}

TEST(WeightFiles, NamesWhatIsWrongWithPartsOfMetas) {
  ScratchDirectory scratch;
  const std::filesystem::path from = golden("torch_files/consolidated_columns");
  std::filesystem::copy(from / "consolidated.00.pth", scratch / "consolidated.00.pth");
  expect_refused(scratch.path(), "params.json' is missing or too large");
  std::filesystem::copy(golden("torch_files/consolidated_rows/consolidated.01.pth"),
                        scratch / "consolidated.01.pth");
  make_file(scratch / "params.json", R"({"dim": 32, "n_heads": 3})");
  expect_refused(scratch.path(), "3 heads of an even width do not make up 32");
  make_file(scratch / "params.json", R"({"dim": "32", "n_heads": 4})");
  expect_refused(scratch.path(), "params.json': 'dim' must be a number above 0");
  make_file(scratch / "params.json", R"({"dim": 32, "n_heads": 4})");
  expect_refused(scratch.path(), "consolidated.01.pth' it is missing");
  std::filesystem::copy(from / "consolidated.00.pth", scratch / "consolidated.01.pth",
                        std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy(from / "consolidated.00.pth", scratch / "consolidated.02.pth");
  expect_refused(scratch.path(), "tensor 'layers.0.attention.wq.weight' in '" +
                                     (scratch / "consolidated.00.pth").string() +
                                     "' has 16 rows in each of 3 parts, not 32 in all");
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
  expect_refused(scratch.path(), "is a directory of checkpoints of tessera: `tessera export ");
}

TEST(WeightFiles, SaysWhatStandsInTheirPlace) {
  ScratchDirectory scratch;
  make_file(scratch / ".metadata", "x");
  expect_refused(scratch.path(), "`tessera checkpoint convert ");
  make_file(scratch / "model.safetensors",
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  expect_refused(scratch.path(), "model.safetensors' is a pointer of git-lfs");
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
