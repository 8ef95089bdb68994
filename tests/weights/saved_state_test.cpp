// Parts of tensors in safetensors files, as PyTorch's HuggingFaceStorageWriter leaves them.
#include "hub/saved_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/random.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "torch_files/pickle_writer.h"
#include "torch_files/zip_writer.h"

namespace tessera {
namespace {

class ShardedSafetensors : public testing::Test {
 protected:
  // Elements of [5, 4] are their numbers.
  void write(const std::string& file, const TensorBox& box, const std::string& sharding = "") {
    std::vector<float> values;
    for (int64_t r = 0; r < box.shape[0]; ++r)
      for (int64_t c = 0; c < box.shape[1]; ++c)
        values.push_back(static_cast<float>((box.begin[0] + r) * 4 + box.begin[1] + c));
    TensorView view{"w", DType::kF32, box.shape, values.data()};
    const std::string text = sharding.empty() ? cat(R"({"w": {"saved_offsets": [)", box.begin[0],
                                                    ", ", box.begin[1], "]}}")
                                              : sharding;
    write_safetensors(directory_ / file, {&view, 1},
                      {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", text}});
  }
  std::string refusal(Caller caller = Caller::current()) const {
    return user_error([&] { SavedState state(directory_.path()); }, caller);
  }
  ScratchDirectory directory_;
};

TEST_F(ShardedSafetensors, AreOneTensor) {
  write("a.safetensors", {{0, 0}, {2, 4}});
  write("b.safetensors", {{2, 0}, {3, 1}});
  write("c.safetensors", {{2, 1}, {3, 3}});
  write("d.safetensors", {{2, 1}, {3, 3}});  // another rank has the same
  ASSERT_TRUE(is_torch_checkpoint(directory_.path()));
  SavedState state(directory_.path());
  const SavedTensor& w = state.tensors().at("w");
  EXPECT_EQ(w.shape, (Shape{5, 4}));
  EXPECT_EQ(w.dtype, DType::kF32);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const TensorBox box{{row, column}, {5 - row, 4 - column}};
      std::vector<float> values(static_cast<size_t>(box.elements()));
      w.read(box, std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values[0], static_cast<float>(row * 4 + column));
      EXPECT_EQ(values.back(), 19);
    }
  }
  EXPECT_FALSE(state.numbers("w").has_value());
  EXPECT_FALSE(state.numbers("nothing").has_value());
}

TEST_F(ShardedSafetensors, WhatDoesNotMakeUpItsTensorIsRefused) {
  write("a.safetensors", {{0, 0}, {2, 4}});
  write("c.safetensors", {{3, 0}, {2, 4}});
  expect_contains(refusal(), "the parts of tensor 'w'");
  expect_contains(refusal(), "is a file missing?");
  write("b.safetensors", {{2, 0}, {2, 4}});
  expect_contains(refusal(), "the parts of tensor 'w'");
  write("b.safetensors", {{2, 0}, {1, 4}});
  SavedState whole(directory_.path());
  for (const char* text :
       {"[]", "{", R"({"w": [0, 0]})", R"({"w": {}})", R"({"w": {"saved_offsets": [-1, 0]}})",
        R"({"w": {"saved_offsets": [0.5, 0]}})", R"({"w": {"saved_offsets": [1e300, 0]}})",
        R"({"w": {"saved_offsets": [281474976710657, 0]}})", R"({"w": {"saved_offsets": [2]}})",
        R"({"v": {"saved_offsets": [2, 0]}})"}) {
    write("b.safetensors", {{2, 0}, {1, 4}}, text);
    expect_contains(refusal(), "b.safetensors': DCP_SHARDING_INFO ");
  }
  // So far away that the number of its elements does not fit in 64 bits.
  write("b.safetensors", {{2, 0}, {1, 4}},
        R"({"w": {"saved_offsets": [281474976710656, 281474976710656]}})");
  expect_contains(refusal(), "the parts of tensor 'w'");
}

// Of torch.save: PyTorch counts in a tensor, other programs in a number.
TEST(SavedFile, HasWhatAnOptimizerCountsOfAParameter) {
  ScratchDirectory directory;
  std::string pickle;
  PickleWriter w([&](std::string_view bytes) { pickle += bytes; });
  int dicts = 0;
  for (const char* key : {"optim", "state", "layers.0.w"}) {
    w.empty_dict();
    w.mark();
    w.text(key);
    ++dicts;
  }
  w.empty_dict();
  w.mark();
  w.text("step");
  w.number(5);
  for (; dicts >= 0; --dicts) w.set_items();
  w.finish();
  std::ofstream out(directory / "x.pt", std::ios::binary);
  ZipWriter zip([&](std::span<const std::byte> bytes) {
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  });
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/byteorder", "little");
  zip.finish();
  out.close();
  const SavedState state(directory / "x.pt");
  EXPECT_EQ(state.numbers("optim.state.layers.0.w.step"), std::vector{5.0});
}

TEST(FindTorchCheckpoint, TakesTheNewestOfADirectory) {
  ScratchDirectory directory;
  EXPECT_FALSE(find_torch_checkpoint(directory.path()));
  for (const char* name : {"step-9", "step-100", "step-20", "other"}) {
    std::filesystem::create_directory(directory / name);
    directory.write(cat(name, "/.metadata"), "");
  }
  EXPECT_EQ(find_torch_checkpoint(directory.path()), directory / "step-100");
  EXPECT_EQ(find_torch_checkpoint(directory / "step-9"), directory / "step-9");
  EXPECT_FALSE(find_torch_checkpoint(directory / "none"));
}

TEST(FindTorchCheckpoint, LooksAtContentsAndNotAtNamesAlone) {
  namespace fs = std::filesystem;
  ScratchDirectory directory;
  const fs::path goldens = fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/torch_files";
  directory.write("0003.pt", "hello");
  directory.write("0004.pt", "PK, said the file, and nothing of an archive followed");
  EXPECT_EQ(find_torch_checkpoint(directory.path()), directory / "0004.pt") << "it may be damaged";
  fs::remove(directory / "0004.pt");
  fs::copy_file(goldens / "tensor.pt", directory / "0005.pt");  // of no model
  EXPECT_FALSE(find_torch_checkpoint(directory.path()));
  fs::copy_file(goldens / "plain.pt", directory / "0002.pt");
  EXPECT_EQ(find_torch_checkpoint(directory.path()), directory / "0002.pt");
}

// Its files of a state say where parts of tensors belong, as PyTorch's do.
TEST(FindTorchCheckpoint, PassesOverWhatTesseraHasNotFinished) {
  namespace fs = std::filesystem;
  ScratchDirectory directory;
  const float value = 1;
  const TensorView view{"w", DType::kF32, {1}, &value};
  auto write = [&](const std::string& file) {
    fs::create_directories((directory / file).parent_path());
    write_safetensors(directory / file, {&view, 1},
                      {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0]}})"}});
  };
  write("llama_v2-9steps.tmp-12345.77.abc.def0/state.safetensors");
  write("llama_v2-9steps/state-00001-of-00002.safetensors");
  write("a copy without a manifest/state.safetensors");
  EXPECT_FALSE(find_torch_checkpoint(directory.path()));
  write("8/shard-00001-model-00001-of-00001.safetensors");
  EXPECT_EQ(find_torch_checkpoint(directory.path()), directory / "8");
}

}  // namespace
}  // namespace tessera
