// What is said of checkpoints does not depend on the mesh that wrote them.
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/tensor_values.h"
#include "tests/base/scratch_directory.h"
#include "tests/checkpoint/flipped_bits.h"
#include "tests/programs/checkpoint_ranks.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::vector<World> kMeshes{{1},
                                 {3},
                                 {2, "no_shard"},
                                 {4, "hybrid_shard", 2},
                                 {4, "full_shard", 0, 2},
                                 {4, "full_shard", 0, 4}};

TEST(CheckpointValues, DifferencesAreTheSameOnEveryMesh) {
  const ModelConfig model = tiny_model();
  ScratchDirectory scratch;
  std::vector<std::unique_ptr<CheckpointReader>> before, after;
  for (const World& mesh : kMeshes) {
    Ranks ranks(model, mesh);
    for (int64_t steps : {1, 2}) {
      ranks.fill(steps);
      (steps == 1 ? before : after)
          .push_back(std::make_unique<CheckpointReader>(ranks.save(scratch / mesh.text(), steps)));
    }
  }
  for (const auto& a : before) {
    for (const auto& same : before) {
      for (const ManifestTensor& tensor : a->manifest().tensors) {
        TensorDifference d = difference_of(*a, tensor, *same, *same->find(tensor.name));
        EXPECT_EQ(d.elements, num_elements(tensor.shape));
        EXPECT_EQ(d.different, 0) << tensor.name;
      }
    }
    for (const auto& b : after) {
      for (const ManifestTensor& tensor : a->manifest().tensors) {
        TensorDifference d = difference_of(*a, tensor, *b, *b->find(tensor.name));
        if (tensor.role == TensorRole::kCounter) {
          EXPECT_EQ(d.absolute, 1) << tensor.name;
          continue;
        }
        int64_t different = 0;
        double largest = 0;
        for (int64_t i = 0; i < d.elements; ++i) {
          double x = expected(1, tensor.name, i), y = expected(2, tensor.name, i);
          different += x != y;
          largest = std::max(largest, std::abs(x - y));
        }
        EXPECT_EQ(d.different, different) << tensor.name;
        EXPECT_EQ(d.absolute, largest) << tensor.name;
      }
    }
  }
}

TEST(CheckpointValues, StatisticsAreTheSameOnEveryMesh) {
  const ModelConfig model = tiny_model();
  ScratchDirectory scratch;
  for (const World& mesh : kMeshes) {
    Ranks ranks(model, mesh);
    ranks.fill(1);
    CheckpointReader reader(ranks.save(scratch / mesh.text(), 1));
    for (const ManifestTensor& tensor : reader.manifest().tensors) {
      if (tensor.role == TensorRole::kCounter) continue;
      TensorStatistics s = statistics_of(reader, tensor);
      double sum = 0, squares = 0, least = 1e30, largest = 0;
      for (int64_t i = 0; i < num_elements(tensor.shape); ++i) {
        double x = expected(1, tensor.name, i);
        sum += x;
        squares += x * x;
        least = std::min(least, x);
        largest = std::max(largest, x);
      }
      EXPECT_EQ(s.elements, num_elements(tensor.shape));
      EXPECT_EQ(s.minimum, least);
      EXPECT_EQ(s.maximum, largest);
      EXPECT_DOUBLE_EQ(s.mean, sum / static_cast<double>(s.elements));
      EXPECT_NEAR(s.norm / std::sqrt(squares), 1, 1e-12);
    }
  }
}

TEST(CheckpointValues, EveryFlippedBitIsNamedOnEveryMesh) {
  const ModelConfig model = tiny_model_of(ModelType::kGpt2);
  ScratchDirectory scratch;
  uint64_t seed = 7;
  for (const World& mesh : kMeshes) {
    SCOPED_TRACE(mesh.text());
    Ranks ranks(model, mesh);
    ranks.fill(1);
    expect_flipped_bits_named(ranks.save(scratch / mesh.text(), 1), 200, ++seed);
  }
}

}  // namespace
}  // namespace tessera
