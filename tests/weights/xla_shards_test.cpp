// Weights that ranks of torch_xla's FSDP saved, each its shards.
#include "hub/xla_shards.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/weights/xla_shards_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

ModelConfig gpt2_without_biases() {
  ModelConfig model = tiny_model(ModelType::kGpt2, true);
  model.bias = false;
  check(model);
  return model;
}

class XlaShardsTest : public testing::Test {
 protected:
  void expect_whole(const fs::path& path) const {
    const std::vector<Parameter> parameters = parameters_of(model_);
    const TorchTrainingState state(path, model_, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t n = num_elements(parameters[i].shape);
      for (int64_t first = 0, length = 1; first < n; first += length, length = length % 23 + 5) {
        std::vector<float> values(static_cast<size_t>(std::min(length, n - first)));
        state.read(parameters[i].name, first, values);
        for (size_t e = 0; e < values.size(); ++e)
          ASSERT_EQ(values[e], state_value(i, "weight", first + static_cast<int64_t>(e)))
              << parameters[i].name << " " << first + static_cast<int64_t>(e);
      }
    }
  }
  fs::path file(int rank, int world) const {
    return directory_ / XlaShardWriter::file_name(rank, world);
  }
  std::string refusal(const fs::path& path, Caller caller = Caller::current()) const {
    return user_error([&] { XlaShards shards(path); }, caller);
  }

  ScratchDirectory directory_;
  ModelConfig model_ = gpt2_without_biases();
};

TEST_F(XlaShardsTest, AreJoinedWhateverTheNumberOfRanks) {
  for (bool flattens : {true, false}) {
    for (int world : {1, 2, 3, 8}) {
      SCOPED_TRACE(cat(flattens, " ", world));
      ScratchDirectory directory;
      XlaShardWriter writer(model_, world);
      writer.flattens = flattens;
      writer.write(directory.path());
      EXPECT_TRUE(is_training_state(directory.path(), model_.model_type));
      EXPECT_TRUE(
          is_training_state(directory / XlaShardWriter::file_name(0, world), model_.model_type));
      expect_whole(directory.path());
      expect_whole(directory / XlaShardWriter::file_name(0, world));
    }
  }
}

TEST_F(XlaShardsTest, KeepWhatIsNotSharded) {
  XlaShardWriter(model_, 2).write(directory_.path());
  const SavedState state(directory_.path());
  EXPECT_EQ(state.numbers("epoch"), std::vector{3.0});
  EXPECT_TRUE(state.tensors().contains("model.transformer.h.1.mlp.c_proj.weight"));
  EXPECT_EQ(state.tensors().at("model.some_table").shape, Shape{3});
  TorchTrainingState training(directory_.path(), model_, parameters_of(model_));
  expect_contains(user_error([&] { training.find_optimizer(); }),
                  "knows its parameters by numbers");
}

TEST_F(XlaShardsTest, OfJobsOfSeveralSizesOneIsNamed) {
  XlaShardWriter(model_, 2).write(directory_.path());
  XlaShardWriter(model_, 3).write(directory_.path());
  expect_contains(refusal(directory_.path()),
                  "has shards of jobs of 2 and of 3 ranks: give the first file of those");
  expect_whole(file(0, 2));
  expect_whole(file(2, 3));
}

TEST_F(XlaShardsTest, MissingAndMixedFilesAreNamed) {
  XlaShardWriter writer(model_, 3);
  writer.write(directory_.path());
  fs::rename(file(1, 3), directory_ / "kept");
  expect_contains(refusal(directory_.path()), "has shards of 3 ranks, but not that of rank 1");
  fs::copy(file(2, 3), file(1, 3));
  std::string message = refusal(directory_.path());
  expect_contains(message, file(1, 3).string());
  expect_contains(message, "is, by what is in it, of rank 2 of 3, and not what its name says");
  fs::remove(file(1, 3));
  XlaShardWriter other(gpt2_without_biases(), 3);
  other.flattens = false;
  other.write(directory_.path(), 1);
  message = refusal(directory_.path());
  expect_contains(message, "flat_param_0' in '" + file(0, 3).string());
  expect_contains(message, "is another one, or none, in '" + file(1, 3).string());
  model_.num_layers = 3;  // more in the same flat parameters
  model_.hidden_width = 16;
  derive_shape(model_);
  XlaShardWriter(model_, 3).write(directory_.path(), 1);
  expect_contains(refusal(directory_.path()), "is another one, or none, in");
}

TEST_F(XlaShardsTest, TruncatedFilesAreRefused) {
  XlaShardWriter(model_, 2).write(directory_.path());
  const std::string content = read_file(file(1, 2));
  for (size_t keep : {size_t{0}, size_t{10}, content.size() / 2, content.size() - 1}) {
    write_file_atomic(file(1, 2), content.substr(0, keep));
    expect_contains(refusal(directory_.path()), file(1, 2).string());
  }
}

// Whatever a damaged file says is refused or read within its bounds.
TEST_F(XlaShardsTest, FlippedBitsDoNoHarm) {
  XlaShardWriter(model_, 2).write(directory_.path());
  const std::string content = read_file(file(0, 2));
  const size_t pickle = content.find("data.pkl"), length = content.find("byteorder") - pickle;
  int refused = 0;
  for (uint64_t flip = 0; flip < 400; ++flip) {
    std::string flipped = content;
    char& byte = flipped[pickle + 8 + random_below(1, 1, flip, length - 8)];
    byte = static_cast<char>(byte ^ (1 << random_below(1, 2, flip, 8)));
    write_file_atomic(file(0, 2), flipped);
    try {
      const SavedState state(directory_.path());
      for (const auto& [name, tensor] : state.tensors()) {
        if (!tensor.dtype) continue;
        std::vector<std::byte> all(
            static_cast<size_t>(num_elements(tensor.shape) * size_of(*tensor.dtype)));
        tensor.read(whole_box(tensor.shape), all);
      }
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 400);
}

TEST(XlaShardNames, AreOfTwoForms) {
  auto said = [](const std::string& name) {
    const auto found = xla_shard_name(name);
    return found ? cat(found->rank, " of ", found->world) : "";
  };
  EXPECT_EQ(said("rank_0-world_8.pt"), "0 of 8");
  EXPECT_EQ(said("rank_17-world_32.pt"), "17 of 32");
  EXPECT_EQ(said("rank-3-of-4.pth"), "3 of 4");
  for (const char* other :
       {"rank_8-world_8.pt", "rank_0-world_0.pt", "rank_-world_8.pt", "rank_0-world_8.pth",
        "rank_0-world_.pt", "rank_0-world_99999999999999999999.pt", "rank_-1-world_2.pt",
        "rank_0_world_8.pt", "rank-world_.pt", "0.pt", ""})
    EXPECT_EQ(said(other), "") << other;
}

}  // namespace
}  // namespace tessera
