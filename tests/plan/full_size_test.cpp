// The largest preset, planned without its memory: what is fast for a toy must be fast for it.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "base/text.h"
#include "plan/plan.h"
#include "programs/programs.h"

namespace tessera {
namespace {

// Of the processor: a busy machine counts for nothing.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void plan_and_verify(const std::string& name, const Graph& graph) {
  double start = cpu_seconds();
  Plan plan = make_plan(graph, std::vector<int64_t>(graph.nodes().size(), 0));
  double planned = cpu_seconds();
  verify_plan(graph, plan);
  double verified = cpu_seconds();
  std::printf("%s: %zu nodes, planned in %.2f s, verified in %.2f s: %s\n", name.c_str(),
              graph.nodes().size(), planned - start, verified - planned,
              describe(graph, plan).c_str());
  EXPECT_EQ(plan.copies, 0);
  EXPECT_LT(static_cast<double>(plan.arena_bytes),
            1.02 * static_cast<double>(plan.live_peak_bytes));
  EXPECT_LT(planned - start, 5) << "hundredths of a second when this was written";
  EXPECT_LT(verified - planned, 5);
}

TEST(FullSize, Llama70bIsPlannedInSeconds) {
  ModelConfig config = preset_by_name("llama2_70b");
  ProgramOptions options;
  options.length = 4096;
  options.accumulates = true;
  double start = cpu_seconds();
  Programs programs = build_programs(model_builder(config), options);
  double built = cpu_seconds() - start;
  std::printf("programs built in %.2f s\n", built);
  for (const PassTiming& t : programs.timings)
    std::printf("  %s %.3f s\n", t.pass.c_str(), t.seconds);
  EXPECT_LT(built, 10);
  plan_and_verify("accumulate_first", programs.accumulate_first);
  plan_and_verify("accumulate", programs.accumulate);
  plan_and_verify("apply", programs.apply);
  plan_and_verify("evaluate", programs.evaluate);

  options.residency.share_numerator = 1;
  options.residency.regather = options.residency.offload = true;
  start = cpu_seconds();
  Programs small = build_programs(model_builder(config), options);
  std::printf("recomputed and offloaded: programs built in %.2f s\n", cpu_seconds() - start);
  EXPECT_LT(cpu_seconds() - start, 10);
  plan_and_verify("accumulate", small.accumulate);
}

// Steps of planning per node, over the programs of a model of so many layers.
double steps_per_node(int64_t layers, ProgramOptions options) {
  ModelConfig config = preset_by_name("llama3.2_1b");
  config.num_layers = layers;
  options.length = 256;
  options.accumulates = true;
  Programs programs = build_programs(model_builder(config), options);
  double steps = 0, nodes = 0;
  for (const Graph* graph :
       {&programs.accumulate_first, &programs.accumulate, &programs.apply, &programs.evaluate}) {
    steps += static_cast<double>(make_plan(*graph, {}).steps);
    nodes += static_cast<double>(graph->nodes().size());
  }
  return steps / nodes;
}

TEST(FullSize, PlanningTakesTimeInProportionToTheLayers) {
  ProgramOptions keeping, computing_again;
  computing_again.residency.share_numerator = 1;
  for (const ProgramOptions& options : {keeping, computing_again}) {
    double few = steps_per_node(8, options), many = steps_per_node(128, options);
    // The logarithm; with each value compared with all that live beside it: 16 times.
    EXPECT_LT(many, 2 * few);
  }
}

// Tensors that hold several matrices cost no copies, neither gpt2's nor gpt_neox's.
TEST(FullSize, DenseFamiliesArePlannedInPlace) {
  ModelConfig neox = family_defaults(ModelType::kGptNeox);
  apply_preset_size(neox, "20b");
  for (const ModelConfig& config : {preset_by_name("gpt2_xl"), neox}) {
    ProgramOptions options;
    options.length = 1024;
    options.accumulates = true;
    Programs programs = build_programs(model_builder(config), options);
    plan_and_verify("accumulate_first", programs.accumulate_first);
    plan_and_verify("accumulate", programs.accumulate);
    plan_and_verify("evaluate", programs.evaluate);
  }
}

}  // namespace
}  // namespace tessera
