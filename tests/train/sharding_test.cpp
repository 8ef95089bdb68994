// The programs of N ranks against those of one, in lockstep and f64.
#include <gtest/gtest.h>

#include "tests/train/lockstep_job.h"
#include "tests/train/tiny_model.h"

namespace tessera {
namespace {

struct Cell {
  std::string strategy;
  int64_t world, shard_degree, tp;
  int64_t micro_batches = 1;
  bool tied = false, unsharded = false;
};

ModelConfig small_model(bool tied) {
  ModelConfig c = tiny_model();
  c.vocab_size = 37;  // a multiple of no number of ranks
  c.hidden_width = 16;
  c.num_heads = 4;
  c.num_key_value_heads = 2;
  c.intermediate_size = 24;
  c.tie_word_embeddings = tied;
  derive_shape(c);
  return c;
}

Parallelism parallelism_of(const Cell& cell, const ModelConfig& model) {
  RunConfig config;
  config.sharding_strategy = cell.strategy;
  config.shard_degree = cell.shard_degree;
  config.tensor_parallel_degree = cell.tp;
  config.unsharded_accumulation = cell.unsharded;
  config.max_context_width = 8;
  return make_parallelism(config, model, cell.world, 2);
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0, highest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    highest = std::max(highest, std::abs(b[i]));
  }
  return most / std::max(highest, 1e-300);
}

class Sharding : public testing::TestWithParam<Cell> {};

TEST_P(Sharding, EqualsOneRank) {
  const Cell& cell = GetParam();
  ModelConfig model = small_model(cell.tied);
  Parallelism parallelism = parallelism_of(cell, model);
  LockstepJob job(model, parallelism, {2, 8, cell.micro_batches});
  LockstepJob one(model, {}, {2 * parallelism.data_ranks(), 8, cell.micro_batches});
  for (int64_t step = 0; step < 2; ++step) {
    double loss = job.step(step), expected = one.step(step);
    EXPECT_NEAR(loss, expected, 1e-12 * expected) << "step " << step;
    EXPECT_NEAR(job.norm(), one.norm(), 1e-12 * one.norm()) << "step " << step;
    // The first moment after the first step is the clipped gradient times 1 - beta1.
    for (const Parameter& p : job.programs().parameters) {
      EXPECT_LT(difference(job.whole("moment1.", p), one.whole("moment1.", p)), 1e-12) << p.name;
      EXPECT_LT(difference(job.whole("weight.", p), one.whole("weight.", p)), 1e-12) << p.name;
    }
  }
  EXPECT_NEAR(job.evaluate(9), one.evaluate(9), 1e-12 * one.evaluate(9));
}

std::string name_of(const testing::TestParamInfo<Cell>& info) {
  const Cell& c = info.param;
  std::string name = cat(c.strategy, "_w", c.world, "_s", c.shard_degree, "_tp", c.tp, "_a",
                         c.micro_batches, c.tied ? "_tied" : "", c.unsharded ? "_unsharded" : "");
  return name[0] == '_' ? name.substr(1) : name;
}

INSTANTIATE_TEST_SUITE_P(
    Cells, Sharding,
    testing::Values(Cell{"no_shard", 2, 0, 1}, Cell{"full_shard", 2, 0, 1},
                    Cell{"full_shard", 3, 0, 1, 2}, Cell{"shard_grad_op", 4, 0, 1, 2, true},
                    Cell{"hybrid_shard", 4, 0, 1, 2}, Cell{"hybrid_shard", 6, 3, 1, 1, true},
                    Cell{"full_shard", 1, 0, 1, 2}, Cell{"no_shard", 2, 0, 2},
                    Cell{"no_shard", 4, 0, 4, 1, true}, Cell{"full_shard", 4, 0, 2, 2},
                    Cell{"_hybrid_shard_zero2", 8, 2, 2, 2, true}, Cell{"full_shard", 8, 0, 4, 1},
                    Cell{"full_shard", 2, 0, 1, 2, true, true},
                    Cell{"hybrid_shard", 8, 2, 2, 2, false, true}),
    name_of);

}  // namespace
}  // namespace tessera
