// Every op's gradient against a directional derivative in f64, on one rank or in lockstep on
// several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "autodiff/backward.h"
#include "backends/ref/interpreter.h"
#include "backends/ref/kernels.h"
#include "base/random.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ops/composite/cross_entropy.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/registry.h"
#include "tests/ops/op_samples.h"

namespace tessera {
namespace {

struct Built {
  Graph graph;
  std::vector<Value> inputs;
  std::vector<Value> wrt;
  std::vector<std::string> wrt_names;
};

// sum over outputs and ranks of (weights . output): a scalar with a different weight for every
// element of every rank. A replicated output has one weight for all ranks.
Built build(const OpSample& sample) {
  Built b{Graph(sample.mesh), {}, {}, {}};
  Graph& g = b.graph;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    b.inputs.push_back(g.input(cat("x", i), InputKind::kArgument, sample.inputs[i]));
    if (is_float(sample.inputs[i].dtype)) {
      b.wrt.push_back(b.inputs.back());
      b.wrt_names.push_back(cat("x", i));
    }
  }
  std::vector<Value> outputs = g.add(sample.op, b.inputs);
  Value loss;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorType type = g.type(outputs[i]);
    bool statistic = std::find(sample.statistics.begin(), sample.statistics.end(),
                               static_cast<int>(i)) != sample.statistics.end();
    if (!is_float(type.dtype) || statistic) continue;
    Value weight = g.input(cat("weight", i), InputKind::kArgument, type);
    Value product = reshape(g, mul(g, outputs[i], weight), {type.elements()});
    Value term = sum_over_marks(g, reduce_sum(g, product, {0}));
    loss = loss ? add(g, loss, term) : term;
  }
  if (loss) g.output("loss", loss);
  return b;
}

std::vector<double> random_values(const OpSample& sample, const TensorType& type,
                                  const std::string& name, int rank) {
  std::vector<double> values(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t stream = stream_of(name) + static_cast<uint64_t>(rank) * 77;
    if (is_float(type.dtype)) {
      values[i] = sample.low + (sample.high - sample.low) * random_uniform(5, stream, i);
    } else {
      values[i] = static_cast<double>(
          random_below(5, stream, i, static_cast<uint64_t>(sample.integer_bound)));
    }
  }
  if (type.dtype == DType::kI32 && values.size() == 6 &&
      sample.op->name() == "linear_cross_entropy")
    values[2] = kIgnoreIndex;
  for (const auto& [operand, elements] : sample.given)
    if (name == cat("x", operand)) values = elements;
  return values;
}

ref::Feeds make_feeds(const OpSample& sample, const Graph& g) {
  ref::Feeds feeds;
  for (const GraphInput& input : g.inputs()) {
    const TensorType& type = g.type(input.value);
    int ranks = type.varying.empty() ? 1 : g.mesh().world_size();
    for (int r = 0; r < ranks; ++r) {
      // Copies along axes on which the value is replicated must be equal: key by the index over
      // varying axes.
      feeds[input.name].push_back(
          random_values(sample, type, input.name, g.mesh().index(r, type.varying)));
    }
  }
  return feeds;
}

class OpGradient : public testing::TestWithParam<OpSample> {};

TEST_P(OpGradient, EqualsTheDirectionalDerivative) {
  const OpSample& sample = GetParam();
  if (!sample.op->differentiable()) return;  // listed with its reason: see Registry below
  Built b = build(sample);
  std::vector<Value> gradients = backward(b.graph, b.graph.outputs()[0].value, b.wrt);
  verify(b.graph, "backward");
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i]) b.graph.output(cat("gradient ", b.wrt_names[i]), gradients[i]);
  }
  ref::Feeds feeds = make_feeds(sample, b.graph);
  ref::Results results = ref::run(b.graph, feeds);

  // One random direction in the space of typed coordinates: one rank's where the input varies, all
  // copies together where it is replicated.
  double analytic = 0;
  ref::Feeds plus = feeds, minus = feeds;
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < b.wrt.size(); ++i) {
    auto gradient = results.outputs.find(cat("gradient ", b.wrt_names[i]));
    auto& values = feeds[b.wrt_names[i]];
    const TensorType& type = b.graph.type(b.wrt[i]);
    for (size_t copy = 0; copy < values.size(); ++copy) {
      int group = b.graph.mesh().index(static_cast<int>(copy), type.varying);
      // Ranks that hold the same value move together, and their gradient is counted once.
      bool first = true;
      for (size_t r = 0; r < copy; ++r)
        first = first && b.graph.mesh().index(static_cast<int>(r), type.varying) != group;
      for (size_t k = 0; k < values[copy].size(); ++k) {
        double direction =
            random_normal(9, stream_of(b.wrt_names[i]) + static_cast<uint64_t>(group), k);
        plus[b.wrt_names[i]][copy][k] += kStep * direction;
        minus[b.wrt_names[i]][copy][k] -= kStep * direction;
        if (gradient != results.outputs.end() && first)
          analytic += direction * gradient->second[copy].data[k];
      }
    }
  }
  double numeric = (ref::run(b.graph, plus).outputs["loss"][0].data[0] -
                    ref::run(b.graph, minus).outputs["loss"][0].data[0]) /
                   (2 * kStep);
  EXPECT_NEAR(analytic, numeric, 1e-6 * std::max(1e-2, std::abs(numeric))) << to_string(b.graph);
}

TEST_P(OpGradient, DecompositionHasTheTypesOfTheOp) {
  const OpSample& sample = GetParam();
  Built b = build(sample);
  ref::Results results =
      ref::run(b.graph, make_feeds(sample, b.graph));  // checks types of decompositions inside
  for (auto& [name, ranks] : results.outputs) {
    for (double x : ranks[0].data) EXPECT_TRUE(std::isfinite(x)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, OpGradient, testing::ValuesIn(op_samples()), [](const auto& test) {
  std::string label = cat(test.param.op->name(), "_", test.param.label, "_", test.index);
  for (char& c : label) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return label;
});

TEST(Registry, EveryOpHasASampleAndAGradientOrAReason) {
  std::set<std::string> sampled;
  std::map<std::string, bool> differentiable;
  for (const OpSample& sample : op_samples()) {
    sampled.insert(std::string(sample.op->name()));
    differentiable[std::string(sample.op->name())] = sample.op->differentiable();
  }
  std::set<std::string> registered;
  for (const OpRecord& record : op_registry()) {
    std::string op(record.name);
    EXPECT_TRUE(registered.insert(op).second) << op << " is listed twice";
    if (op == "input") continue;
    ASSERT_TRUE(sampled.count(op)) << op << " has no sample";
    EXPECT_EQ(differentiable[op], record.no_gradient.empty()) << op;
    if (record.tier != Tier::kPrimitive) continue;
    EXPECT_NE(ref::find_kernel(op), nullptr) << op << " has no reference kernel";
  }
  for (const std::string& op : sampled)
    EXPECT_TRUE(registered.count(op)) << op << " is not registered";
}

TEST(Registry, EveryOpSaysHowManyOperandsItTakes) {
  const std::set<std::string_view> any_number{"concatenate", "flatten", "linear", "sum_n"};
  for (const OpSample& sample : op_samples()) {
    std::string_view op = sample.op->name();
    if (any_number.count(op)) {
      EXPECT_EQ(sample.op->arity(), Op::kAnyNumber) << op;
      // Its infer checks them.
      EXPECT_THROW(Graph(sample.mesh).add(sample.op, {}), UserError) << op;
    } else {
      EXPECT_EQ(sample.op->arity(), std::ssize(sample.inputs)) << op;
    }
  }
}

TEST(Registry, CompositesOfProductsContract) {
  for (const OpSample& sample : op_samples()) {
    if (sample.op->tier() != Tier::kComposite) continue;
    Graph g(sample.mesh);
    std::vector<Value> inputs;
    for (const TensorType& type : sample.inputs)
      inputs.push_back(g.input(cat("x", inputs.size()), InputKind::kArgument, type));
    sample.op->decompose(g, inputs);
    bool products =
        std::ranges::any_of(g.nodes(), [](const Node& node) { return node.op->contracts(); });
    EXPECT_EQ(sample.op->contracts(), products) << sample.op->name();
  }
}

TEST(Registry, TransfersAloneUseTheLinkBetweenTiers) {
  for (const OpSample& sample : op_samples()) {
    std::string_view op = sample.op->name();
    Cost cost = sample.op->cost(sample.inputs, sample.op->infer({sample.inputs, sample.mesh}));
    bool transfer = op == "offload" || op == "fetch";
    EXPECT_EQ(cost.link_bytes, transfer ? static_cast<double>(sample.inputs[0].bytes()) : 0) << op;
  }
}

}  // namespace
}  // namespace tessera
