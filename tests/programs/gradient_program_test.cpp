// Micro-batches behind the first: each part of a gradient is added to the sums where it is made.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/plan.h"
#include "programs/job_slots.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

ModelConfig tied(ModelConfig model) {
  model.tie_word_embeddings = true;
  return model;
}

int nodes_named(const Graph& graph, std::string_view op) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes(), [&](const Node& n) { return n.op->name() == op; }));
}

TEST(GradientSums, AreUpdatedByTheOpsThatMakeTheGradients) {
  for (const ModelConfig& model :
       {tiny_model(), tied(tiny_model()), tiny_model_of(ModelType::kGpt2)}) {
    const Programs programs =
        build_programs(model_builder(model), tiny_programs(2, 16, DType::kBF16));
    const Graph& first = programs.accumulate_first;
    const Graph& later = programs.accumulate;
    Plan plan = make_plan(later, {});
    verify_plan(later, plan);
    EXPECT_EQ(plan.copies, 0);
    int of_products = 0;
    for (const Node& node : later.nodes()) {
      if (!node.op->name().ends_with("_add")) continue;
      const InPlacePair pair = node.op->in_place_pairs().at(0);
      const Place sum = plan.places[static_cast<size_t>(node.inputs.at(pair.input).id)],
                  result = plan.places[static_cast<size_t>(node.outputs.at(pair.output).id)];
      EXPECT_EQ(sum.storage, result.storage);
      EXPECT_EQ(sum.offset, result.offset);
      const bool of_activations =
          node.op->name() == "linear_dx_add" || node.op->name().ends_with("norm_backward_add");
      EXPECT_NE(plan.storages[static_cast<size_t>(result.storage)].external, of_activations);
      of_products += node.op->name() == "linear_dw_add";
    }
    EXPECT_EQ(of_products, nodes_named(first, "linear_dw"));
    EXPECT_EQ(nodes_named(later, "linear_cross_entropy_backward_add"), 1);
    EXPECT_EQ(
        nodes_named(later, "embedding_backward_add"),
        nodes_named(first, "embedding_backward") + nodes_named(first, "embedding_backward_add"));
    for (const char* op : {"linear_dw", "linear_cross_entropy_backward", "embedding_backward"})
      EXPECT_EQ(nodes_named(later, op), 0) << op;
    // What is added by kernels of their own: norms, biases, positions, sums of losses and tokens.
    for (const Node& node : later.nodes()) {
      if (node.op->name() != "add" || node.phase != Phase::kBackward) continue;
      EXPECT_LE(later.type(node.outputs[0]).elements(), 32 * 32) << node.scope;
    }
  }
}

TEST(GradientSums, TakeNoMemoryForAUnitBesideItsSlot) {
  for (const ModelConfig& model : {tiny_model(), tied(tiny_model())}) {
    const Programs programs =
        build_programs(model_builder(model), tiny_programs(1, 4, DType::kBF16));
    PlanOptions plain;
    plain.lodging = false;
    const Plan first = make_plan(programs.accumulate_first, {}, plain),
               later = make_plan(programs.accumulate, {}, plain);
    constexpr int64_t kLossAndTokens = 2 * kBufferAlignment;  // added when the head has given them
    EXPECT_LE(later.live_peak_bytes, first.live_peak_bytes + kLossAndTokens);
    for (const Storage& storage : later.storages) {
      if (storage.external) continue;
      EXPECT_LT(storage.bytes, 4 * 32 * 64) << "the smallest gradient of a product in the MLP";
    }
  }
}

// The gradient of a table that is the head's matrix, too, is one buffer in every micro-batch.
TEST(GradientSums, OfATiedTableGoOverTheHeads) {
  const Programs programs =
      build_programs(model_builder(tied(tiny_model())), tiny_programs(2, 16, DType::kBF16));
  EXPECT_EQ(nodes_named(programs.accumulate_first, "embedding_backward_add"), 1);
  EXPECT_EQ(nodes_named(programs.accumulate_first, "embedding_backward"), 0);
  for (const Graph* graph : {&programs.accumulate_first, &programs.accumulate}) {
    const Plan plan = make_plan(*graph, {});
    for (const Node& node : graph->nodes()) {
      if (node.op->name() != "embedding_backward_add") continue;
      const Place sum = plan.places[static_cast<size_t>(node.inputs[2].id)],
                  result = plan.places[static_cast<size_t>(node.outputs[0].id)];
      EXPECT_EQ(sum.storage, result.storage);
      EXPECT_EQ(plan.storages[static_cast<size_t>(sum.storage)].external_name,
                gradient_slot(programs.units[0]));
    }
  }
}

// Far slots are fetched once and updated in that copy.
TEST(GradientSums, OfTheFarTierAreUpdatedInTheCopyThatIsNear) {
  ProgramOptions options = tiny_programs(1, 4, DType::kBF16);
  options.far_state = true;
  for (const ModelConfig& model : {tiny_model(), tied(tiny_model())}) {
    const Programs programs = build_programs(model_builder(model), options);
    const Graph& later = programs.accumulate;
    const Plan plan = make_plan(later, {});
    verify_plan(later, plan);
    EXPECT_EQ(plan.copies, 0);
    auto storage = [&](Value v) { return plan.places[static_cast<size_t>(v.id)].storage; };
    auto maker = [&](Value v) { return later.nodes()[static_cast<size_t>(later.producer(v))]; };
    std::map<int32_t, std::string> fetched;  // slots by storage of the copy
    int units = 0;
    for (const Node& node : later.nodes()) {
      if (node.op->name() == "fetch")
        fetched[storage(node.outputs[0])] = later.input_of(node.inputs[0])->name;
      if (node.op->name().ends_with("_add")) {
        const InPlacePair pair = node.op->in_place_pairs().at(0);
        EXPECT_EQ(storage(node.inputs.at(pair.input)), storage(node.outputs.at(pair.output)))
            << node.op->name();
      }
      if (node.op->name() != "offload" || node.phase != Phase::kBackward) continue;
      EXPECT_EQ(maker(node.inputs[0]).op->name(), "flatten");
      EXPECT_TRUE(fetched[storage(node.inputs[0])].starts_with("gradient.")) << node.scope;
      ++units;
    }
    EXPECT_EQ(units, std::ssize(programs.units));
  }
}

// Gradients of two micro-batches, each alone and added up here, are those of both.
TEST(GradientSums, AreThoseOfTheMicroBatches) {
  for (const ModelConfig& model : {tiny_model(), tied(tiny_model()), tied(odd_model())}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      TinySession tiny(model, tiny_programs(2, 16, compute), 2);
      const TinyBatch a(2, 16, 1), b(2, 16, 2);
      auto gradients = [&](std::vector<MicroBatch> micro_batches) {
        tiny.session.accumulate(micro_batches);
        std::vector<std::vector<float>> all;
        for (const Parameter& p : tiny.session.programs().parameters)
          all.push_back(tiny.session.gradient(p.name));
        return all;
      };
      const auto of_a = gradients({a.view()}), of_b = gradients({b.view()}),
                 of_both = gradients({a.view(), b.view()});
      for (size_t p = 0; p < of_both.size(); ++p) {
        double error = 0, size = 0;
        for (size_t i = 0; i < of_both[p].size(); ++i) {
          const double expected = double{of_a[p][i]} + of_b[p][i];
          error = std::max(error, std::abs(of_both[p][i] - expected));
          size = std::max(size, std::abs(expected));
        }
        EXPECT_LE(error, 2e-7 * size) << tiny.session.programs().parameters[p].name;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
