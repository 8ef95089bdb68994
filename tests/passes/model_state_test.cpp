// State that a forward pass updates, through every pass.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ir/verifier.h"
#include "passes/canonicalize.h"
#include "passes/far_state.h"
#include "passes/kv_cache.h"
#include "passes/overlap.h"
#include "passes/precision.h"
#include "passes/residency.h"
#include "tests/passes/running_maximum.h"
#include "tests/passes/split_model.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

constexpr double kBefore = 1e-3;  // what the slot holds, on every rank

double largest_of(const Graph& graph, ref::Feeds feeds) {
  verify(graph, "test");
  feeds["largest"] = {{kBefore}};
  ref::Results results = ref::run(graph, feeds);
  auto update = results.updates.find("largest");
  if (update == results.updates.end()) return NAN;
  for (const ref::Tensor& rank : update->second) EXPECT_EQ(rank.data, update->second[0].data);
  EXPECT_EQ(update->second[0].type.dtype, DType::kF32);
  return update->second[0].data[0];
}

class ModelState : public testing::Test {
 protected:
  ModelState() : feeds(tiny_feeds(model, model.graph, {})), expected(expect()) {}
  double expect() const {
    double largest = largest_of(model.graph, feeds);
    EXPECT_GT(largest, kBefore);
    return largest;
  }

  ModelGraph model = with_running_maximum(tiny_llama());
  ref::Feeds feeds;
  double expected;
};

TEST_F(ModelState, KeepsItsTypeBehindPrecision) {
  EXPECT_NEAR(largest_of(precision(model.graph, DType::kBF16), feeds), expected, 0.05 * expected);
}

TEST_F(ModelState, AParameterInASlotIsThatOfItsUnit) {
  const Parameter& p = model.parameters.front();
  model.graph.update("copy", model.graph.input_value(p.name));
  for (const Graph& graph : {model.graph, precision(model.graph, DType::kBF16)}) {
    std::vector<FlatUnit> units = make_units(graph, model.parameters);
    Graph flat = flat_units(graph, model.parameters, units);
    verify(flat, "flat_units");
    ref::Feeds of_units = tiny_feeds(model, flat, units);
    of_units["largest"] = {{kBefore}};
    ref::Results results = ref::run(flat, of_units);
    EXPECT_EQ(results.updates.at("copy")[0].data.size(), feeds.at(p.name)[0].size());
    EXPECT_EQ(results.updates.at("copy")[0].type.dtype, DType::kF32);
  }
}

TEST_F(ModelState, SurvivesTensorParallelism) {
  Mesh mesh({{"tp", 2}});
  TensorParallelAxes axes{mesh.axis("tp"), mesh.axis("tp")};
  std::vector<ParameterPart> parts = parameter_parts(model.parameters, mesh, axes);
  for (bool sequence_parallel : {false, true}) {
    Graph graph =
        tensor_parallel(model.graph, model.parameters, parts, mesh, axes, sequence_parallel);
    ref::Feeds by_rank = feeds;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Parameter& p = model.parameters[i];
      by_rank[p.name] = parts_of(feeds.at(p.name)[0], p.shape, parts[i], 2);
      for (std::vector<double>& part : by_rank[p.name])  // padding of the vocabulary
        part.resize(static_cast<size_t>(num_elements(parts[i].shape)));
    }
    EXPECT_NEAR(largest_of(graph, by_rank), expected, 1e-6) << sequence_parallel;
  }
}

// On flat state, with gradients: through all that a training program goes through.
TEST_F(ModelState, SurvivesEveryPassOfATrainingProgram) {
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  Graph graph = flat_units(model.graph, model.parameters, units);
  ref::Feeds of_units = tiny_feeds(model, graph, units);
  EXPECT_EQ(largest_of(graph, of_units), expected) << "flat_units";
  graph = canonicalize(with_gradients(graph, units));
  EXPECT_EQ(largest_of(graph, of_units), expected) << "canonicalize";
  auto is_far = [](const std::string& slot) { return slot.starts_with("weight."); };
  EXPECT_EQ(largest_of(far_state(graph, [](const std::string&) { return true; }), of_units),
            expected)
      << "far_state of all";
  graph = far_state(graph, is_far);
  EXPECT_EQ(largest_of(graph, of_units), expected) << "far_state";
  ResidencyOptions options;
  options.share_numerator = 1;
  options.regather = true;
  options.offload = true;
  graph = residency(graph, options);
  EXPECT_EQ(largest_of(graph, of_units), expected) << "residency";
  EXPECT_EQ(largest_of(overlap(graph, {}), of_units), expected) << "overlap";
}

TEST_F(ModelState, SurvivesContinuation) {
  int64_t batch = model.graph.type(model.graph.input_value("tokens")).shape[0];
  Graph graph = kv_cache(model.graph, {.capacity = 16, .rows = batch, .batch = batch});
  feeds["start"] = {std::vector<double>(static_cast<size_t>(batch))};
  feeds["row"] = {std::vector<double>(static_cast<size_t>(batch))};
  std::iota(feeds["row"][0].begin(), feeds["row"][0].end(), 0);
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kState)
      feeds[input.name] = {
          std::vector<double>(static_cast<size_t>(graph.type(input.value).elements()))};
  }
  EXPECT_NEAR(largest_of(graph, feeds), expected, 1e-6);
}

}  // namespace
}  // namespace tessera
