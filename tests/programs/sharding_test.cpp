// The programs of N ranks against those of one, in lockstep and f64: a pairwise covering array of
// the options. sharding_product_test.cpp runs all of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/base/error_expectation.h"
#include "tests/programs/sharding_cells.h"

namespace tessera {
namespace {

TEST(CoveringArray, HasEveryPossiblePairOnce) {
  // Three factors of 3, 2 and 2; the first two never stand at their last levels together.
  auto possible = [](const Row& row) { return !(row[0] == 2 && row[1] == 1); };
  CoveringArray array({3, 2, 2}, possible);
  std::set<std::vector<int>> pairs;
  for (const Row& row : array.rows()) {
    EXPECT_EQ(std::ranges::count(row, -1), 0);
    EXPECT_TRUE(possible(row));
    for (int f = 0; f < 3; ++f) {
      for (int g = f + 1; g < 3; ++g)
        pairs.insert({f, g, row[static_cast<size_t>(f)], row[static_cast<size_t>(g)]});
    }
  }
  EXPECT_EQ(pairs.size(), 3u * 2 - 1 + 3 * 2 + 2 * 2);
  EXPECT_EQ(array.pairs(), pairs.size());
  EXPECT_LE(array.rows().size(), 7u);
  EXPECT_EQ(array.rows(), CoveringArray({3, 2, 2}, possible).rows());
}

TEST(CoveringArray, OfShardingIsSmallAndComplete) {
  const CoveringArray& array = covering_cells();
  std::set<std::tuple<size_t, int, size_t, int>> pairs;
  for (const Cell& cell : array.rows()) {
    ASSERT_TRUE(is_possible(cell));
    for (size_t f = 0; f < cell.size(); ++f) {
      for (size_t g = f + 1; g < cell.size(); ++g) pairs.insert({f, cell[f], g, cell[g]});
    }
  }
  EXPECT_EQ(pairs.size(), array.pairs());
  EXPECT_LT(array.rows().size(), 60u);
}

// 37 tokens on 2 and 4 ranks: parts of 19 and 10 rows, of which the last has padding.
TEST(Padding, OfTheVocabularyStaysZeroAndIsNobodys) {
  for (auto [world, tp] : {std::pair{1, 1}, {3, 1}, {3, 2}}) {  // levels: w2 tp2, w4 tp2, w4 tp4
    Cell cell(sharding_factors().size());
    cell[0] = 2;  // full_shard
    cell[1] = world;
    cell[2] = tp;
    SCOPED_TRACE(name_of(cell));
    CellJob job = job_of(cell);
    LockstepJob lockstep(job.model, job.options, 1);
    for (int64_t step = 0; step < 3; ++step) lockstep.step(step);
    const Programs& programs = lockstep.programs();
    int64_t own_rows = 0, rows = 0;
    for (const FlatUnit& unit : programs.units) {
      for (int rank = 0; rank < lockstep.world(); ++rank) {
        EXPECT_EQ(lockstep.strays(unit, rank), 0) << unit.name << " of rank " << rank;
        for (size_t k = 0; k < unit.members.size(); ++k) {
          auto index = static_cast<size_t>(unit.parameters[k]);
          if (programs.parameters[index].name != "lm_head.weight") continue;
          for (const PieceRange& range : piece_ranges(programs, unit, k, rank))
            own_rows += range.count / job.model.hidden_width;
          if (programs.parallelism.mesh.index(rank, programs.parallelism.data.shard) == 0)
            rows += programs.parts[index].shape[0];
        }
      }
    }
    EXPECT_EQ(own_rows, 37);
    EXPECT_EQ(rows, tp == 1 ? 38 : 40);
  }
}

// One gather a layer, also where a matrix is read through views and transposes.
TEST(Units, ALayerIsOneWhereNothingIsCut) {
  for (size_t model = 0; model < sharding_factors()[kModelFactor].levels.size(); ++model) {
    Cell cell(sharding_factors().size());
    cell[0] = 2;  // full_shard
    cell[1] = 1;  // of two ranks
    cell[kModelFactor] = static_cast<int>(model);
    SCOPED_TRACE(name_of(cell));
    CellJob job = job_of(cell);
    for (const FlatUnit& unit : build_programs(model_builder(job.model), job.options).units)
      expect_lacks(unit.name, "/");
  }
}

class Sharding : public testing::TestWithParam<Cell> {
 protected:
  static CellChecker checker_;
};
CellChecker Sharding::checker_;

TEST_P(Sharding, EqualsOneRank) {
  SCOPED_TRACE(cat("tessera plan ", arguments_of(GetParam())));
  EXPECT_EQ(checker_.check(job_of(GetParam())), "");
}

// Lion's steps are signs, which differ where a gradient is nothing but rounding: this model has
// none.
TEST(Lion, OfRanksIsThatOfOne) {
  for (const auto& [world, tp] : {std::pair{1, 0}, {3, 0}, {3, 1}, {3, 2}}) {  // w2, w4, tp2, tp4
    for (int accumulation : {0, 1}) {
      Cell cell(sharding_factors().size());
      cell[0] = 2;  // full_shard
      cell[1] = world;
      cell[2] = tp;
      cell[4] = accumulation;
      cell[11] = accumulation;  // far state
      SCOPED_TRACE(name_of(cell));
      CellJob job = job_of(cell);
      job.options.optimizer = {.name = "lion", .beta2 = 0.99};
      job.options.loss_scaling = LossScaling{};
      EXPECT_EQ(CellChecker().check(job), "");
    }
  }
}

// The squares of whole and of vocabulary-parallel heads, and the loss scale.
TEST(ZLoss, OfRanksIsThatOfOne) {
  CellChecker checker;
  for (const auto& [world, tp] : {std::pair{3, 0}, {3, 1}, {3, 2}}) {  // levels: w4, tp2, tp4
    Cell cell(sharding_factors().size());
    cell[0] = 2;  // full_shard
    cell[1] = world;
    cell[2] = tp;
    for (int frozen : {0, 1, 2}) {
      cell.back() = frozen;
      SCOPED_TRACE(name_of(cell));
      CellJob job = job_of(cell);
      job.options.z_loss = 0.125;
      job.options.loss_scaling = LossScaling{};
      EXPECT_EQ(checker.check(job), "");
      EXPECT_GT(run(job).losses[1], 0.5);
    }
  }
}

// What only a config.json can say: a window in some layers, a scaled rope, dropout of every family,
// a padding id.
TEST(ConfiguredModels, OfRanksAreThatOfOne) {
  constexpr size_t kModel = 8, kTied = 6, kRecompute = 9;
  ASSERT_EQ(sharding_factors()[kModel].name, "model");
  for (int model : {3, 6}) {                                             // mistral, neox
    for (const auto& [world, tp] : {std::pair{1, 1}, {3, 0}, {3, 2}}) {  // w2 tp2, w4, w4 tp4
      Cell cell(sharding_factors().size());
      cell[0] = 2;  // full_shard
      cell[1] = world;
      cell[2] = tp;
      cell[kModel] = model;
      cell[kTied] = cell[kRecompute] = tp > 0;
      SCOPED_TRACE(name_of(cell));
      CellJob job = job_of(cell);
      ModelConfig& c = job.model;
      c.rope_scaling = {.type = RopeScalingType::kYarn,
                        .factor = 4,
                        .attention_factor = 1.5,
                        .original_max_position = 8};
      c.attn_pdrop = 0.25;
      if (c.model_type == ModelType::kGptNeox) {
        c.resid_pdrop = c.embd_pdrop = 0.125;
      } else {
        c.windowed_layers = {false, true};
        c.padding_id = 5;
      }
      check(c);
      EXPECT_EQ(CellChecker().check(job), "");
    }
  }
}

// What the names promise is really there to change bits.
TEST(ShardingCells, DoWhatTheyAreCalled) {
  for (const Cell& cell : covering_cells().rows()) {
    CellJob job = job_of(cell);
    Programs programs = build_programs(model_builder(job.model), job.options);
    auto has = [&](std::string_view op, Phase phase) {
      return std::ranges::any_of(programs.accumulate_first.nodes(), [&](const Node& n) {
        return (op.empty() || n.op->name() == op) && n.phase == phase;
      });
    };
    std::string name = cat("_", name_of(cell), "_");
    auto is = [&](const std::string& label) {
      return name.find(cat("_", label, "_")) != std::string::npos;
    };
    // Of two layers the first is that of "half", and that which waits in the far tier while the
    // backward pass of the second runs; with a frozen bottom it has none.
    bool first = !is("bottom");
    bool again = is("layers") || is("ops") || (is("half") && first) || job.parallelism().regather;
    EXPECT_LE(again, has("", Phase::kRecompute)) << name;
    EXPECT_EQ(has("linear", Phase::kRecompute), is("layers") || (is("half") && first)) << name;
    EXPECT_EQ(has("offload", Phase::kForward), is("offload0") || (is("offload1") && first)) << name;
    bool frozen =
        std::ranges::any_of(programs.units, [](const FlatUnit& u) { return !u.trainable; });
    EXPECT_EQ(frozen, is("bottom") || is("parts") || is("lora") || is("loras")) << name;
    EXPECT_EQ(has("fetch", Phase::kForward), is("far")) << name;
    EXPECT_EQ(programs.accumulate.nodes().empty(), !is("a3")) << name;
    EXPECT_EQ(job.parallelism().sequence_parallel, (is("tp2") || is("tp4")) && !is("odd")) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Sharding, testing::ValuesIn(covering_cells().rows()),
                         [](const auto& cell) { return name_of(cell.param); });

}  // namespace
}  // namespace tessera
