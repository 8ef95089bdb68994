// A block of the dense families, with layer_norm, biases, gelu and dropout everywhere, split over
// ranks: loss and gradients are those of one rank, so the masks are too.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/ref/interpreter.h"
#include "backends/ref/true_marks.h"
#include "ops/composite/attention.h"
#include "ops/composite/dropout.h"
#include "ops/composite/gelu.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/passes/split_model.h"

namespace tessera {
namespace {

constexpr int64_t kTokens = 6, kHeads = 6, kHeadDim = 4, kWidth = 24, kHidden = 18;

struct DenseBlock {
  ModelGraph model;
  int64_t batch;

  Value parameter(const std::string& name, Shape shape, std::vector<std::string> axes) {
    Value v = model.graph.input(name, InputKind::kParameter, {shape, DType::kF64});
    model.parameters.push_back(
        {.name = name, .value = v, .shape = shape, .unit = "layer", .axes = std::move(axes)});
    return v;
  }
  // x w^T + b, split as its logical axes say.
  Value project(Value x, const std::string& name, int64_t n, int64_t k,
                std::vector<std::string> axes) {
    std::string rows = axes[0];
    Value w = parameter(name, {n, k}, std::move(axes));
    return linear(model.graph, x, w, parameter(name + ".bias", {n}, {rows}));
  }
  Value norm(Value x, const std::string& name) {
    Value w = parameter(name, {kWidth}, {"embed"}),
          b = parameter(name + ".bias", {kWidth}, {"embed"});
    return layer_norm(model.graph, x, w, b, 1e-5);
  }

  explicit DenseBlock(double p, int64_t rows = 2) : batch(rows) {
    Graph& g = model.graph;
    Value x = g.input("x", InputKind::kArgument, {{batch, kTokens, kWidth}, DType::kF64});
    Value keys = g.input("row_keys", InputKind::kArgument, {{batch}, DType::kI64});
    x = dropout(g, x, keys, p, "embed");
    Value h = norm(x, "ln_1");
    auto heads = [&](const std::string& name) {
      return reshape(g, project(h, name, kWidth, kWidth, {"heads", "embed"}),
                     {batch, kTokens, kHeads, kHeadDim});
    };
    Value q = heads("q"), k = heads("k"), v = heads("v");
    Value o = attention(g, q, k, v, 0.5, {}, keys, p, "attn");
    o = project(reshape(g, o, {batch, kTokens, kWidth}), "o", kWidth, kWidth, {"embed", "heads"});
    x = add(g, x, dropout(g, o, keys, p, "attn.residual"));
    Value m =
        gelu(g, project(norm(x, "ln_2"), "fc", kHidden, kWidth, {"mlp", "embed"}), GeluKind::kTanh);
    m = dropout(g, m, keys, p, "mlp.hidden");
    m = project(m, "out", kWidth, kHidden, {"embed", "mlp"});
    x = norm(add(g, x, dropout(g, m, keys, p, "mlp.residual")), "ln_f");
    Value weight = g.input("weight", InputKind::kArgument, {{batch, kTokens, kWidth}, DType::kF64});
    g.output("loss", reduce_sum(g, mul(g, mul(g, x, x), weight), {0, 1, 2}));
  }
};

const std::vector<double> kKeys{12345, 67890};

// Rows [first, end) of a batch of two.
auto run(const Split& split, int ranks, int64_t first = 0, int64_t end = 2) {
  auto rows = [&](const std::string& name) {
    std::vector<double> all = numbers(name, 2 * kTokens * kWidth);
    return std::vector<double>(all.begin() + first * kTokens * kWidth,
                               all.begin() + end * kTokens * kWidth);
  };
  ref::Feeds feeds{{"x", {rows("x")}},
                   {"weight", {rows("weight")}},
                   {"row_keys", {{kKeys.begin() + first, kKeys.begin() + end}}}};
  for (size_t i = 0; i < split.parts.size(); ++i) {
    const Parameter& p = split.model.parameters[i];
    feeds[p.name] =
        parts_of(numbers(p.name, num_elements(p.shape)), p.shape, split.parts[i], ranks);
  }
  return ref::run(split.graph, feeds, ref::true_marks()).outputs;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-10 * (1 + std::abs(want[i]))) << i;
}

TEST(TensorParallelDense, LossAndGradientsAreThoseOfOneRank) {
  for (double p : {0.0, 0.3}) {
    auto one = run(Split(DenseBlock(p).model, 1, false, 1), 1);
    for (int ranks : {2, 3, 6}) {
      for (bool sequence_parallel : {false, true}) {
        SCOPED_TRACE(cat(p, " ", ranks, " ranks", sequence_parallel ? ", sequence" : ""));
        Split split(DenseBlock(p).model, ranks, sequence_parallel, ranks);
        auto many = run(split, ranks);
        expect_near(many.at("loss")[0].data, one.at("loss")[0].data);
        for (size_t i = 0; i < split.parts.size(); ++i) {
          const Parameter& parameter = split.model.parameters[i];
          SCOPED_TRACE(parameter.name);
          std::string name = cat("d ", parameter.name);
          auto parts = parts_of(one.at(name)[0].data, parameter.shape, split.parts[i], ranks);
          for (size_t r = 0; r < static_cast<size_t>(ranks); ++r)
            expect_near(many.at(name)[r].data, parts[parts.size() == 1 ? 0 : r]);
        }
      }
    }
  }
}

// A row has the same masks whichever rows are beside it: in one batch, two micro-batches, two
// ranks.
TEST(TensorParallelDense, ABatchIsTheSumOfItsRows) {
  auto whole = run(Split(DenseBlock(0.3).model, 1, false, 1), 1);
  Split one_row(DenseBlock(0.3, 1).model, 1, false, 1);
  auto first = run(one_row, 1, 0, 1), second = run(one_row, 1, 1, 2);
  for (const auto& [name, tensors] : whole) {
    SCOPED_TRACE(name);
    std::vector<double> sum = first.at(name)[0].data;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += second.at(name)[0].data[i];
    expect_near(sum, tensors[0].data);
  }
}

// Column-parallel biases are cut with their rows, row-parallel ones are whole and added to the sum.
TEST(TensorParallelDense, BiasesFollowTheirMatrices) {
  Split split(DenseBlock(0).model, 2, false, 2);
  EXPECT_EQ(split.part("fc.bias").shape, Shape{kHidden / 2});
  EXPECT_EQ(split.part("out.bias").shape, Shape{kWidth});
  int added = 0;
  for (const Node& node : split.graph.nodes()) {
    if (node.op->name() != "add_bias") continue;
    const Node& maker =
        split.graph.nodes()[static_cast<size_t>(split.graph.producer(node.inputs[0]))];
    EXPECT_EQ(maker.op->name(), "all_reduce");
    ++added;
  }
  EXPECT_EQ(added, 2);
  // One sum a direction for attention and one for the layer behind it, as without biases.
  EXPECT_EQ(split.count("all_reduce", "", Phase::kForward), 2);
  EXPECT_EQ(split.count("all_reduce", "", Phase::kBackward), 2);
}

}  // namespace
}  // namespace tessera
