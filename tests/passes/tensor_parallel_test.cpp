#include "passes/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/ref/interpreter.h"
#include "backends/ref/true_marks.h"
#include "models/build_model.h"
#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/passes/split_model.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 2, kLength = 8, kWidth = 24;

ModelGraph llama_with(int64_t key_value_heads) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_width = kWidth;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_key_value_heads = key_value_heads;
  config.head_dim = 6;
  config.intermediate_size = 40;
  return build_model(config, kRows, kLength, ModelHead::kLoss);
}

// Shoeybi et al. 2019, figure 4.
TEST(TensorParallel, TwoAllReducesALayerAndDirection) {
  for (int ranks : {2, 4}) {
    Split split(llama_with(4), ranks, false, ranks);
    for (const char* layer : {"layers.0", "layers.1"}) {
      for (Phase phase : {Phase::kForward, Phase::kBackward}) {
        SCOPED_TRACE(cat(ranks, " ", layer, " ", name(phase)));
        EXPECT_EQ(split.count("all_reduce", layer, phase), 2);
        EXPECT_EQ(split.count("all_reduce", layer, phase, kRows * kLength * kWidth), 2);
        for (const char* other : {"all_gather", "reduce_scatter", "gather_replicated"})
          EXPECT_EQ(split.count(other, layer, phase), 0) << other;
      }
    }
  }
}

TEST(TensorParallel, ASumIsTakenWhereItIsMade) {
  for (bool sequence_parallel : {false, true}) {
    Split split(llama_with(4), 2, sequence_parallel, 2);
    const char* op = sequence_parallel ? "reduce_scatter" : "all_reduce";
    for (const char* scope : {"embed", "layers.0.attn", "layers.0.mlp", "layers.1.mlp"})
      EXPECT_EQ(split.count(op, scope, Phase::kForward), 1) << scope;
  }
}

// Korthikanti et al. 2022, figure 5: the same bytes, and norms and sums work on a part each.
TEST(TensorParallel, GathersAndScattersInPairsWithSequenceParallelism) {
  for (int ranks : {2, 4}) {
    Split split(llama_with(4), ranks, true, ranks);
    for (const char* layer : {"layers.0", "layers.1"}) {
      for (Phase phase : {Phase::kForward, Phase::kBackward}) {
        SCOPED_TRACE(cat(ranks, " ", layer, " ", name(phase)));
        int64_t whole = kRows * kLength * kWidth;
        EXPECT_EQ(split.count("all_gather", layer, phase, whole / ranks), 2);
        EXPECT_EQ(split.count("reduce_scatter", layer, phase, whole), 2);
        EXPECT_EQ(split.count("gather_replicated", layer, phase), 0);
        // Only the gradients of the two norms' weights, which programs put off to the update.
        bool back = phase == Phase::kBackward;
        EXPECT_EQ(split.count("all_reduce", layer, phase), back ? 2 : 0);
        EXPECT_EQ(split.count("all_reduce", layer, phase, kWidth), back ? 2 : 0);
      }
    }
    for (const Node& node : split.graph.nodes()) {
      if (node.op->name() != "rms_norm") continue;
      EXPECT_EQ(split.graph.shape(node.outputs[0])[1], kLength / ranks) << node.scope;
    }
  }
}

TEST(TensorParallel, TheSequenceStaysWholeWhereItDoesNotDivide) {
  Split split(tiny_llama(), 2, true, 2);  // windows of 7
  EXPECT_EQ(split.count("reduce_scatter", "layers.", Phase::kForward), 0);
  EXPECT_EQ(split.count("all_reduce", "layers.0", Phase::kForward), 2);
}

TEST(TensorParallel, CutsByLogicalAxes) {
  Split split(llama_with(2), 4, true, 2);
  auto expect = [&](const std::string& name, Shape shape, AxisSet axes) {
    const ParameterPart& part = split.part(name);
    EXPECT_EQ(part.shape, shape) << name;
    EXPECT_EQ(part.axes, axes) << name;
    TensorType type = split.graph.type(split.graph.input_value(name));
    EXPECT_EQ(type, (TensorType{shape, DType::kF32, axes})) << name;
  };
  const std::string layer = "model.layers.0.";
  AxisSet all = split.axes.all, heads = split.axes.kv_heads;
  expect(layer + "self_attn.q_proj.weight", {6, 24}, all);
  expect(layer + "self_attn.k_proj.weight", {6, 24}, heads);  // two ranks have the same head
  expect(layer + "self_attn.v_proj.weight", {6, 24}, heads);
  expect(layer + "self_attn.o_proj.weight", {24, 6}, all);
  expect(layer + "mlp.gate_proj.weight", {10, 24}, all);
  expect(layer + "mlp.down_proj.weight", {24, 10}, all);
  expect(layer + "input_layernorm.weight", {24}, {});
  expect("model.embed_tokens.weight", {10, 24}, all);  // 37 rows and 3 of padding
  expect("lm_head.weight", {10, 24}, all);
  Split two(llama_with(2), 2, true, 2);
  EXPECT_EQ(two.part("lm_head.weight").shape, (Shape{19, 24}));
}

// Parameters of several matrices are cut in each, and nothing is put together again.
TEST(TensorParallel, FusedMatricesAreCutByHeads) {
  for (ModelType type : {ModelType::kGpt2, ModelType::kGptNeox}) {
    SCOPED_TRACE(name(type));
    ModelConfig config = family_defaults(type);
    config.vocab_size = 37;
    config.hidden_width = kWidth;
    config.num_layers = 2;
    config.num_heads = config.num_key_value_heads = 4;
    config.max_context_width = kLength;
    config.bias = true;
    config.rotary_pct = 0.5;
    derive_shape(config);
    Split split(build_model(config, kRows, kLength, ModelHead::kTraining), 2, false, 2);
    bool gpt2 = type == ModelType::kGpt2;
    std::string fused =
        gpt2 ? "transformer.h.0.attn.c_attn" : "gpt_neox.layers.0.attention.query_key_value";
    EXPECT_EQ(split.part(fused + ".weight").shape,
              gpt2 ? Shape({3, 12, 24}) : Shape({2, 3, 6, 24}));
    EXPECT_EQ(split.part(fused + ".bias").shape, gpt2 ? Shape({3, 12}) : Shape({2, 3, 6}));
    for (const Node& node : split.graph.nodes()) {
      if (node.op->name() != "attention") continue;
      EXPECT_EQ(split.graph.shape(node.inputs[0]), (Shape{kRows, kLength, 2, 6}));
    }
    for (const char* other : {"all_gather", "reduce_scatter", "gather_replicated", "local_slice"})
      EXPECT_EQ(split.count(other, "layers.", Phase::kForward), 0) << other;
    EXPECT_EQ(split.count("all_reduce", "layers.0", Phase::kForward), 2);
  }
}

// Every rank norms its own heads by the same weights, whose gradient is the sum of what ranks find.
TEST(TensorParallel, NormsOfHeadsAreWholeOnEveryRank) {
  for (int64_t key_value_heads : {4, 2, 1}) {
    SCOPED_TRACE(key_value_heads);
    ModelConfig config = family_defaults(ModelType::kQwen3);
    config.vocab_size = 37;
    config.hidden_width = kWidth;
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_key_value_heads = key_value_heads;
    config.head_dim = 10;
    config.intermediate_size = 40;
    Split split(build_model(config, kRows, kLength, ModelHead::kLoss), 4, false,
                static_cast<int>(key_value_heads));
    for (const char* norm : {"q_norm", "k_norm"}) {
      const ParameterPart& part = split.part(cat("model.layers.0.self_attn.", norm, ".weight"));
      EXPECT_EQ(part.shape, Shape{10}) << norm;
      EXPECT_EQ(part.axes, AxisSet{}) << norm;
    }
    for (const Node& node : split.graph.nodes()) {
      if (node.op->name() != "rms_norm" || !node.scope.ends_with("q_norm")) continue;
      EXPECT_EQ(split.graph.shape(node.outputs[0]), (Shape{kRows, kLength, 1, 10}));
    }
    for (const char* other : {"all_gather", "reduce_scatter", "gather_replicated"})
      EXPECT_EQ(split.count(other, "layers.", Phase::kForward), 0) << other;
    EXPECT_EQ(split.count("all_reduce", "layers.0", Phase::kForward), 2);
    // The norm of a key that all ranks have is computed alike by all.
    EXPECT_EQ(split.count("all_reduce", "layers.0", Phase::kBackward, 10),
              key_value_heads > 1 ? 2 : 1);
  }
}

TEST(TensorParallel, OneKeyValueHeadServesAllRanks) {
  for (bool sequence_parallel : {false, true}) {
    Split split(llama_with(1), 4, sequence_parallel, 1);
    EXPECT_EQ(split.part("model.layers.0.self_attn.k_proj.weight").dim, -1);
    int attentions = 0;
    for (const Node& node : split.graph.nodes()) {
      if (node.op->name() != "attention") continue;
      ++attentions;
      EXPECT_EQ(split.graph.shape(node.inputs[0]), (Shape{kRows, kLength, 1, 6}));
      EXPECT_EQ(split.graph.shape(node.inputs[1]), (Shape{kRows, kLength, 1, 6}));
    }
    EXPECT_EQ(attentions, 2);
  }
}

TEST(TensorParallel, WhatCannotBeCutIsNamed) {
  EXPECT_EQ(user_error([] { Split split(llama_with(4), 16, false, 16); }),
            "--tensor_parallel_degree: dim 0 (heads) of "
            "model.layers.0.self_attn.q_proj.weight [24, 24] cannot be cut into 16 equal parts");
}

// sum((x a^T) b^T + bias)^2, a cut by columns and b by rows.
struct Biased {
  ModelGraph model;
  Value x, hidden;
  Biased() {
    Graph& g = model.graph;
    x = g.input("x", InputKind::kArgument, {{2, 4, 6}, DType::kF64});
    auto parameter = [&](const std::string& name, Shape shape, std::vector<std::string> axes) {
      Value v = g.input(name, InputKind::kParameter, {shape, DType::kF64});
      model.parameters.push_back(
          {.name = name, .value = v, .shape = shape, .unit = "layer", .axes = std::move(axes)});
      return v;
    };
    Value a = parameter("a", {8, 6}, {"mlp", "embed"});
    Value b = parameter("b", {6, 8}, {"embed", "mlp"});
    Value bias = parameter("bias", {6}, {"embed"});
    hidden = linear(g, linear(g, x, a), b);
    Value y = add(g, hidden, broadcast_leading(g, bias, g.shape(hidden)));
    g.output("y", reduce_sum(g, mul(g, y, y), {0, 1, 2}));
  }
};

// Results on so many ranks, where x and the parameters are made of numbers.
auto results(ModelGraph model, int ranks, bool sequence_parallel) {
  Split split(std::move(model), ranks, sequence_parallel, ranks);
  const Graph& g = split.graph;
  ref::Feeds feeds{{"x", {numbers("x", g.type(g.input_value("x")).elements())}}};
  for (size_t i = 0; i < split.parts.size(); ++i) {
    const Parameter& p = split.model.parameters[i];
    feeds[p.name] =
        parts_of(numbers(p.name, num_elements(p.shape)), p.shape, split.parts[i], ranks);
  }
  return ref::run(g, feeds, ref::true_marks()).outputs;
}

TEST(TensorParallel, ABiasBehindARowSplitMatrixIsAddedOnce) {
  for (bool sequence_parallel : {false, true}) {
    SCOPED_TRACE(sequence_parallel);
    auto one = results(Biased().model, 1, sequence_parallel),
         two = results(Biased().model, 2, sequence_parallel);
    EXPECT_NEAR(two.at("y")[0].data[0], one.at("y")[0].data[0], 1e-12 * one.at("y")[0].data[0]);
    for (size_t i = 0; i < 6; ++i) {
      double expected = one.at("d bias")[0].data[i];
      EXPECT_NEAR(two.at("d bias")[0].data[i], expected, 1e-12 * std::abs(expected));
    }
  }
}

// The operand of the first matrix is whole, that of the second a sum, which under sequence
// parallelism is cut along the sequence.
TEST(TensorParallel, AMatrixSplitByRowsTakesAnOperandThatLiesOtherwise) {
  auto two_matrices = [] {
    ModelGraph model;
    Graph& g = model.graph;
    Value y = g.input("x", InputKind::kArgument, {{2, 4, 8}, DType::kF64});
    for (const char* name : {"a", "b"}) {
      Value w = g.input(name, InputKind::kParameter, {{8, 8}, DType::kF64});
      model.parameters.push_back(
          {.name = name, .value = w, .shape = {8, 8}, .unit = "layer", .axes = {"embed", "mlp"}});
      y = linear(g, y, w);
    }
    g.output("y", reduce_sum(g, mul(g, y, y), {0, 1, 2}));
    return model;
  };
  auto one = results(two_matrices(), 1, false);
  for (bool sequence_parallel : {false, true}) {
    auto two = results(two_matrices(), 2, sequence_parallel);
    EXPECT_NEAR(two.at("y")[0].data[0], one.at("y")[0].data[0], 1e-12 * one.at("y")[0].data[0]);
    for (const char* name : {"d a", "d b"}) {
      for (size_t i = 0; i < 64; ++i) {
        const double expected = one.at(name)[0].data[i];
        const size_t row = i / 8, column = i % 8;
        EXPECT_NEAR(two.at(name)[column / 4].data[row * 4 + column % 4], expected,
                    1e-12 * std::abs(expected))
            << name << " " << i << (sequence_parallel ? ", sequence" : "");
      }
    }
  }
}

TEST(TensorParallel, PartialSumsAreReducedBeforeAnythingElseReadsThem) {
  Split split(Biased().model, 2, false, 2);
  const Graph& g = split.graph;
  int reduced = 0;
  for (const Node& node : g.nodes()) {
    if (node.op->name() != "all_reduce" || node.phase != Phase::kForward) continue;
    const Node& maker = g.nodes()[static_cast<size_t>(g.producer(node.inputs[0]))];
    EXPECT_EQ(maker.op->name(), "linear");
    auto readers = std::ranges::count_if(g.nodes(), [&](const Node& reader) {
      return std::ranges::count(reader.inputs, node.inputs[0]) > 0;
    });
    EXPECT_EQ(readers, 1);
    ++reduced;
  }
  EXPECT_EQ(reduced, 1);
}

TEST(TensorParallel, AResultThatDiffersBetweenRanksIsAnError) {
  Biased biased;
  biased.model.graph.output(
      "hidden", linear(biased.model.graph, biased.x, biased.model.graph.input_value("a")));
  EXPECT_THROW(Split(std::move(biased.model), 2, false, 2), InternalError);
}

}  // namespace
}  // namespace tessera
