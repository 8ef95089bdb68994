// Op::split: every op that a model may be written with, however its operands lie on the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backends/ref/interpreter.h"
#include "backends/ref/true_marks.h"
#include "base/random.h"
#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "passes/tensor_parallel.h"
#include "tests/ops/op_samples.h"

namespace tessera {
namespace {

// Of the samples those that stand in the graph of one device: not what the pass itself writes, nor
// what comes later.
std::vector<OpSample> samples_of_models() {
  std::vector<OpSample> samples;
  for (OpSample& sample : op_samples()) {
    const std::string_view op = sample.op->name();
    const bool of_a_rank = !sample.inputs.empty() && sample.inputs.back().dtype == DType::kI32 &&
                           sample.inputs.back().shape.empty();
    const bool of_a_part = op == "embedding" && sample.label == "partial";
    if (sample.op->tier() == Tier::kCollective || of_a_rank || of_a_part) continue;
    if (sample.op->differentiable() || op == "count_targets") samples.push_back(std::move(sample));
  }
  return samples;
}

constexpr int64_t kWhole = -1, kSum = -2;

// How the operands lie: whole, cut along a dim, or as summands of ranks.
struct Layout {
  int64_t ranks = 2;
  std::vector<int64_t> operands;
};

int64_t smallest_divisor(int64_t n) {
  for (int64_t d = 2; d < n; ++d)
    if (n % d == 0) return d;
  return n;
}

// One operand at a time, and all at once that can be cut along a dim.
std::vector<Layout> layouts_of(const OpSample& sample) {
  std::vector<Layout> layouts;
  const size_t count = sample.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    const Shape& shape = sample.inputs[i].shape;
    if (!is_float(sample.inputs[i].dtype) || shape.empty()) continue;
    Layout one{2, std::vector<int64_t>(count, kWhole)};
    one.operands[i] = kSum;
    layouts.push_back(one);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] < 2) continue;
      one = {smallest_divisor(shape[d]), std::vector<int64_t>(count, kWhole)};
      one.operands[i] = static_cast<int64_t>(d);
      layouts.push_back(one);
      for (size_t k = 0; k < count; ++k) {
        const Shape& other = sample.inputs[k].shape;
        if (is_float(sample.inputs[k].dtype) && d < other.size() && other[d] % one.ranks == 0)
          one.operands[k] = static_cast<int64_t>(d);
      }
      layouts.push_back(one);
    }
  }
  return layouts;
}

std::string text_of(const OpSample& sample, const Layout& layout) {
  std::string text = cat(sample.op->name(), " ", sample.label, " on ", layout.ranks, " ranks:");
  for (int64_t lies : layout.operands)
    text += lies == kWhole ? " whole" : lies == kSum ? " sum" : cat(" dim ", lies);
  return text;
}

// The sample as a model of one device, with operands as parameters that are cut so. A sum is the
// product of a [..., 2] and a matrix [last dim, 2] that is cut by rows.
class Model {
 public:
  Model(const OpSample& sample, const Layout& layout) : sample_(sample), layout_(layout) {
    std::vector<Value> operands;
    for (size_t i = 0; i < sample.inputs.size(); ++i) operands.push_back(operand(i));
    const std::vector<Value> outputs = graph_.add(sample.op, operands);
    for (size_t k = 0; k < outputs.size(); ++k) graph_.output(cat("y", k), whole(outputs[k]));
  }

  Graph split() const {
    const Mesh mesh({{"tp", static_cast<int>(layout_.ranks)}});
    const TensorParallelAxes axes{mesh.axis("tp"), mesh.axis("tp")};
    const auto parts = parameter_parts(parameters_, mesh, axes);
    return tensor_parallel(graph_, parameters_, parts, mesh, axes, false);
  }

  std::vector<ref::Tensor> on_one_device() const {
    ref::Feeds feeds;
    for (const auto& [name, values] : values_) feeds[name] = {values};
    return outputs_of(graph_, feeds);
  }
  std::vector<ref::Tensor> on_ranks(const Graph& split) const {
    ref::Feeds feeds;
    for (const auto& [name, values] : values_) feeds[name] = {values};
    for (const Parameter& p : parameters_) {
      const auto cut = std::ranges::find(p.axes, "mlp");
      if (cut != p.axes.end())
        feeds[p.name] = pieces(values_.at(p.name), p.shape, cut - p.axes.begin());
    }
    return outputs_of(split, feeds);
  }

 private:
  Value input(const std::string& name, const TensorType& type, int64_t cut) {
    Value value = graph_.input(
        name, is_float(type.dtype) ? InputKind::kParameter : InputKind::kArgument, type);
    std::vector<double>& values = values_[name];
    for (int64_t i = 0; i < type.elements(); ++i) {
      const auto at = static_cast<uint64_t>(i);
      values.push_back(
          is_float(type.dtype)
              ? sample_.low + (sample_.high - sample_.low) * random_uniform(5, stream_of(name), at)
              : static_cast<double>(random_below(5, stream_of(name), at,
                                                 static_cast<uint64_t>(sample_.integer_bound))));
    }
    if (!is_float(type.dtype)) return value;
    std::vector<std::string> axes(type.shape.size());
    if (cut >= 0) axes[static_cast<size_t>(cut)] = "mlp";
    parameters_.push_back({.name = name, .value = value, .shape = type.shape, .axes = axes});
    return value;
  }

  Value operand(size_t i) {
    const TensorType& type = sample_.inputs[i];
    const std::string name = cat("x", i);
    if (layout_.operands[i] == kSum) {
      TensorType rows = type;
      rows.shape.back() = 2;
      Value a = input(cat(name, " rows"), rows, kWhole);
      Value b = input(cat(name, " matrix"), {{type.shape.back(), 2}, type.dtype}, 1);
      return linear(graph_, a, b);
    }
    Value value = input(name, type, layout_.operands[i]);
    if (const auto given = sample_.given.find(i); given != sample_.given.end())
      values_[name] = given->second;
    return value;
  }

  // Results of a model are; this has no rule.
  Value whole(Value v) {
    const Shape& shape = graph_.shape(v);
    return shape.empty() ? v : graph_.add_one(std::make_shared<Slice>(0, 0, shape[0]), {v});
  }

  std::vector<std::vector<double>> pieces(const std::vector<double>& whole, const Shape& shape,
                                          int64_t dim) const {
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(dim) + 1; d < shape.size(); ++d) inner *= shape[d];
    const int64_t size = shape[static_cast<size_t>(dim)];
    std::vector<std::vector<double>> pieces(static_cast<size_t>(layout_.ranks));
    for (size_t i = 0; i < whole.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / inner % size;
      pieces[static_cast<size_t>(row / (size / layout_.ranks))].push_back(whole[i]);
    }
    return pieces;
  }

  static std::vector<ref::Tensor> outputs_of(const Graph& graph, const ref::Feeds& feeds) {
    std::vector<ref::Tensor> outputs;
    for (const auto& [name, ranks] : ref::run(graph, feeds, ref::true_marks()).outputs)
      outputs.push_back(ranks[0]);
    return outputs;
  }

  const OpSample& sample_;
  const Layout layout_;
  Graph graph_;
  std::vector<Parameter> parameters_;
  std::map<std::string, std::vector<double>> values_;
};

void expect_results_of_one_device(const OpSample& sample, const Layout& layout) {
  SCOPED_TRACE(text_of(sample, layout));
  const Model model(sample, layout);
  const auto expected = model.on_one_device(), found = model.on_ranks(model.split());
  ASSERT_EQ(found.size(), expected.size());
  for (size_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(found[k].data.size(), expected[k].data.size());
    for (size_t i = 0; i < found[k].data.size(); ++i)
      EXPECT_NEAR(found[k].data[i], expected[k].data[i],
                  1e-12 * std::max(1.0, std::abs(expected[k].data[i])))
          << "output " << k << ", element " << i;
  }
}

TEST(SplitRules, HoweverOperandsLieResultsAreThoseOfOneDevice) {
  for (const OpSample& sample : samples_of_models())
    for (const Layout& layout : layouts_of(sample)) expect_results_of_one_device(sample, layout);
  const TensorType matrix{{4, 6}, DType::kF64};
  const OpSample product{.op = std::make_shared<Binary>(BinaryKind::kMul),
                         .inputs = {matrix, matrix}};
  expect_results_of_one_device(product, {2, {0, 1}});
}

// Without a rule every operand is made whole on all ranks, which is right and costs exchanges.
TEST(SplitRules, EveryCompositeHasOneOrAReason) {
  const std::map<std::string_view, std::string_view> without{
      {"count_targets", "counts integers, which all ranks have"},
      {"sum_n", "is written by autodiff, behind the pass"}};
  std::set<std::string_view> all, with;
  const std::vector<OpSample> samples = samples_of_models();
  for (const OpSample& sample : samples) {
    if (sample.op->tier() != Tier::kComposite) continue;
    all.insert(sample.op->name());
    for (const Layout& layout : layouts_of(sample)) {
      const Graph split = Model(sample, layout).split();
      for (size_t i = 0; i < layout.operands.size(); ++i) {
        if (layout.operands[i] < 0) continue;
        const Value cut = split.input_value(cat("x", i));
        const bool gathered = std::ranges::any_of(split.nodes(), [&](const Node& node) {
          return node.op->tier() == Tier::kCollective &&
                 std::ranges::find(node.inputs, cut) != node.inputs.end();
        });
        if (!gathered) with.insert(sample.op->name());
      }
    }
  }
  for (std::string_view op : all)
    EXPECT_NE(with.contains(op), without.contains(op))
        << op
        << (with.contains(op) ? " has a rule: take it off the list"
                              : " has no rule: override split(), or say here why it needs none");
}

}  // namespace
}  // namespace tessera
