// Where gradients are summed over replicas: in the last gradient program of a step, beside what is
// left of its backward pass.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/verifier.h"
#include "plan/plan.h"
#include "programs/job_slots.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

struct Job {
  std::string label, strategy;
  int world = 2, shard = 0, tp = 1;
  bool unsharded = false;
};

Programs programs_of(const Job& job, bool accumulates, bool far_state = false) {
  ModelConfig model = tiny_model();
  model.num_layers = 4;
  RunConfig config;
  config.sharding_strategy = job.strategy;
  config.shard_degree = job.shard;
  config.tensor_parallel_degree = job.tp;
  config.unsharded_accumulation = job.unsharded;
  ProgramOptions options = tiny_programs(2, 16, DType::kBF16);
  options.parallelism = make_parallelism(config, model, job.world, job.world);
  options.accumulates = accumulates;
  options.far_state = far_state;
  return build_programs(model_builder(model), options);
}

// The sums over ranks of gradients of whole units or pieces: of flat buffers.
std::vector<int32_t> gradient_sums(const Programs& programs, const Graph& graph) {
  std::vector<int32_t> sums;
  for (int32_t i = 0; i < std::ssize(graph.nodes()); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    if (node.op->name() != "all_reduce") continue;
    const Shape& shape = graph.shape(node.inputs[0]);
    if (std::ranges::any_of(programs.units,
                            [&](const FlatUnit& u) { return shape == Shape{u.shard_size}; }))
      sums.push_back(i);
  }
  return sums;
}

size_t index_of(const Plan& plan, InstructionKind kind, int32_t node) {
  size_t i = 0;
  while (i < plan.instructions.size() &&
         !(plan.instructions[i].kind == kind && plan.instructions[i].node == node))
    ++i;
  return i;
}

class ReplicaGradients : public testing::TestWithParam<Job> {};

TEST_P(ReplicaGradients, AreSummedInTheLastProgramOnly) {
  for (bool far_state : {false, true}) {
    Programs programs = programs_of(GetParam(), true, far_state);
    EXPECT_EQ(&programs.micro_batch(true, false).graph, &programs.accumulate_first);
    EXPECT_EQ(&programs.micro_batch(false, false).graph, &programs.accumulate);
    EXPECT_EQ(&programs.micro_batch(false, true).graph, &programs.accumulate_last);
    EXPECT_EQ(&programs.micro_batch(true, true).graph, &programs.accumulate_only);
    for (const Graph* last : {&programs.accumulate_last, &programs.accumulate_only})
      EXPECT_EQ(gradient_sums(programs, *last).size(), programs.units.size());
    for (const Graph* other : {&programs.accumulate_first, &programs.accumulate, &programs.apply})
      EXPECT_TRUE(gradient_sums(programs, *other).empty());
    for (const Node& node : programs.apply.nodes()) {
      if (!node.op->communication()) continue;
      EXPECT_TRUE(programs.apply.shape(node.inputs[0]).empty()) << node.op->name();
    }
  }
}

TEST_P(ReplicaGradients, AreSummedByTheOneProgramOfAStepOfOneMicroBatch) {
  Programs programs = programs_of(GetParam(), false);
  EXPECT_EQ(&programs.micro_batch(true, true).graph, &programs.accumulate_first);
  EXPECT_EQ(gradient_sums(programs, programs.accumulate_first).size(), programs.units.size());
  for (const Graph* none :
       {&programs.accumulate, &programs.accumulate_last, &programs.accumulate_only})
    EXPECT_TRUE(none->nodes().empty());
}

TEST_P(ReplicaGradients, AreSummedBesideTheBackwardPass) {
  Programs programs = programs_of(GetParam(), true);
  for (const Graph* graph : {&programs.accumulate_last, &programs.accumulate_only}) {
    Plan plan = make_plan(*graph, {});
    verify_plan(*graph, plan);
    size_t last_product = 0;
    for (int32_t i = 0; i < std::ssize(graph->nodes()); ++i) {
      if (graph->nodes()[static_cast<size_t>(i)].op->name().starts_with("linear_dw"))
        last_product = index_of(plan, InstructionKind::kLaunch, i);
    }
    size_t beside = 0;
    for (int32_t sum : gradient_sums(programs, *graph)) {
      const Node& node = graph->nodes()[static_cast<size_t>(sum)];
      EXPECT_EQ(node.phase, Phase::kBackward);
      size_t begin = index_of(plan, InstructionKind::kLaunch, sum),
             end = index_of(plan, InstructionKind::kWait, sum);
      beside += begin < last_product && end > last_product;
      // In the slot's own bytes.
      const Place &from = plan.places[static_cast<size_t>(node.inputs[0].id)],
                  &to = plan.places[static_cast<size_t>(node.outputs[0].id)];
      EXPECT_EQ(from.storage, to.storage);
      EXPECT_TRUE(plan.storages[static_cast<size_t>(to.storage)].external);
    }
    // Not those of the embedding and of the first layer, whose products come last. A sum that waits
    // until the next reduce-scatter begins is a layer behind.
    size_t behind = GetParam().shard > 0 && graph == &programs.accumulate_only ? 3 : 2;
    EXPECT_EQ(beside, programs.units.size() - behind);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReplicaGradients,
    testing::Values(Job{"replicated", "no_shard"}, Job{"hybrid", "hybrid_shard", 4, 2},
                    Job{"unsharded_without_shards", "no_shard", 2, 0, 1, true}),
    [](const auto& job) { return job.param.label; });

// Parameters that are whole on the ranks of a tensor-parallel group are copies too.
TEST(ReplicaGradientsOnce, OfTensorParallelRanks) {
  Programs programs = programs_of({"", "full_shard", 4, 0, 2}, true);
  EXPECT_FALSE(gradient_sums(programs, programs.accumulate_last).empty());
  EXPECT_TRUE(gradient_sums(programs, programs.apply).empty());
}

TEST(ReplicaGradientsOnce, NeedNoProgramOfTheirOwnWhereThereAreNone) {
  for (const Job& job :
       {Job{"", "no_shard", 1}, Job{"", "full_shard", 2}, Job{"", "hybrid_shard", 4, 2, 1, true}}) {
    Programs programs = programs_of(job, true);
    EXPECT_TRUE(programs.accumulate_last.nodes().empty());
    EXPECT_TRUE(programs.accumulate_only.nodes().empty());
    EXPECT_EQ(&programs.micro_batch(true, true).graph, &programs.accumulate_first);
    EXPECT_EQ(&programs.micro_batch(false, true).graph, &programs.accumulate);
    // What is added up whole is scattered and summed once a step.
    EXPECT_EQ(gradient_sums(programs, programs.apply).empty(), !job.unsharded);
  }
}

}  // namespace
}  // namespace tessera
