#include "tests/cuda/cuda_uses.h"

#include <cmath>
#include <tuple>

#include "backends/ref/kernels.h"
#include "base/random.h"
#include "base/text.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/rms_norm.h"
#include "ops/move/far_tier.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/ops/op_samples.h"

namespace tessera::cuda {
namespace {

// The op with `dtype` in place of the f64 of its attributes.
OpPtr retyped(const OpSample& sample, DType dtype) {
  TensorType result = sample.op->infer({sample.inputs, sample.mesh})[0];
  result.dtype = dtype;
  const Op* op = sample.op.get();
  if (auto* constant = dynamic_cast<const Constant*>(op))
    return make<Constant>(result, constant->value());
  if (auto* table = dynamic_cast<const Table*>(op)) return make<Table>(dtype, table->values());
  if (auto* iota = dynamic_cast<const Iota*>(op)) return make<Iota>(result, iota->dim());
  if (dynamic_cast<const Convert*>(op)) return make<Convert>(dtype);
  if (dynamic_cast<const ScatterAdd*>(op)) return make<ScatterAdd>(result.shape[0], dtype);
  if (auto* dot = dynamic_cast<const Dot*>(op))
    return make<Dot>(dot->batch(), dot->contract_a(), dot->contract_b(), dtype);
  return sample.op;
}

bool has_launch(const Op& op) {
  return op.view_offsets().empty() && op.placement_offsets().empty();
}

}  // namespace

Graph graph_of(const Use& use) {
  Graph g;
  std::vector<Value> inputs;
  for (size_t i = 0; i < use.types.size(); ++i)
    inputs.push_back(g.input(cat("x", i), InputKind::kArgument, use.types[i]));
  // What is far is read from near only.
  if (use.op->name() == "fetch") inputs[0] = offload(g, inputs[0]);
  std::vector<Value> outputs = g.add(use.op, inputs);
  if (use.op->name() == "offload") outputs[0] = fetch(g, outputs[0]);
  for (size_t k = 0; k < outputs.size(); ++k) g.output(cat("y", k), outputs[k]);
  return g;
}

Doubles random_values(const TensorType& type, double low, double high, int64_t bound,
                      uint64_t seed) {
  Doubles values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const double u = random_uniform(seed, stream_of("samples"), static_cast<uint64_t>(i));
    values.push_back(is_float(type.dtype) ? ref::round_to(type.dtype, low + (high - low) * u)
                                          : std::floor(u * static_cast<double>(bound)));
  }
  return values;
}

Use use_of(OpPtr op, std::vector<TensorType> types, double low, double high, int64_t bound,
           const std::map<size_t, Doubles>& given) {
  Use use{std::string(op->name()), std::move(op), std::move(types), {}};
  for (size_t i = 0; i < use.types.size(); ++i) {
    auto values = given.find(i);
    use.feeds[cat("x", i)] = {values != given.end()
                                  ? values->second
                                  : random_values(use.types[i], low, high, bound, i + 1)};
  }
  return use;
}

std::vector<Use> sampled_primitives(DType dtype) {
  std::vector<Use> uses;
  for (const OpSample& sample : op_samples()) {
    if (sample.op->tier() != Tier::kPrimitive || !has_launch(*sample.op)) continue;
    std::vector<TensorType> types = sample.inputs;
    for (TensorType& type : types)
      if (is_float(type.dtype)) type.dtype = dtype;
    uses.push_back(use_of(retyped(sample, dtype), types, sample.low, sample.high,
                          sample.integer_bound, sample.given));
    uses.back().label = cat(sample.op->key(), " ", sample.label, " ", name(dtype));
  }
  return uses;
}

std::vector<Use> larger_primitives(DType dtype) {
  auto f = [&](Shape shape) { return TensorType{std::move(shape), dtype}; };
  const TensorType x = f({7, 21, 53}), even = f({4, 16, 72}), ids{{65}, DType::kI32},
                   wide_ids{{65}, DType::kI64}, flags{{7, 21, 53}, DType::kBool};
  using Dims = std::vector<int64_t>;
  auto use = [](OpPtr op, std::vector<TensorType> types, int64_t bound = 1) {
    return use_of(std::move(op), std::move(types), 0.5, 2, bound);
  };
  return {
      use(make<Unary>(UnaryKind::kExp), {x}),
      use(make<Unary>(UnaryKind::kIsFinite), {x}),
      use(make<Binary>(BinaryKind::kAdd), {x, x}),
      use(make<Binary>(BinaryKind::kDiv), {even, even}),
      use(make<Compare>(Comparison::kGe), {x, x}),
      use(make<Select>(), {flags, x, x}, 2),
      use(make<Convert>(dtype == DType::kF32 ? DType::kBF16 : DType::kF32), {x}),
      use(make<Constant>(x, 0.3), {}),
      use(make<Iota>(x, 1), {}),
      use(make<Transpose>(Dims{2, 1, 0}), {x}),
      use(make<Transpose>(Dims{1, 0, 2}), {even}),
      use(make<Broadcast>(Shape{7, 21, 53}, Dims{0, 2}), {f({7, 53})}),
      use(make<Broadcast>(Shape{100, 33}, Dims{}), {f({})}),
      use(make<Slice>(1, 2, 20), {x}),
      use(make<Slice>(1, 2, 12), {even}),
      use(make<Pad>(1, 2, 3, -1.5), {x}),
      use(make<Concatenate>(2), {x, f({7, 21, 1}), x}),
      use(make<Concatenate>(1), {even, even}),
      use(make<Gather>(), {f({97, 5, 11}), ids}, 97),
      use(make<Gather>(), {f({97, 8, 8}), wide_ids}, 97),
      use(make<ScatterAdd>(97, dtype), {ids, f({65, 5, 11})}, 97),
      use(make<ScatterAdd>(3, DType::kF32), {wide_ids, f({65, 1300})}, 3),
      use(make<Reduce>(Reduction::kSum, Dims{0}), {x}),
      use(make<Reduce>(Reduction::kSum, Dims{2}), {even}),
      use(make<Reduce>(Reduction::kSum, Dims{0, 2}), {x}),
      use(make<Reduce>(Reduction::kSum, Dims{0, 1, 2}), {x}),
      use(make<Reduce>(Reduction::kMax, Dims{1}), {x}),
      use(make<Reduce>(Reduction::kMax, Dims{0, 1, 2}), {x}),
      use(make<Dot>(0, 1, 1, dtype), {f({61, 67}), f({101, 67})}),
      use(make<Dot>(0, 1, 1, dtype), {f({130, 72}), f({136, 72})}),
      use(make<Dot>(0, 1, 0, dtype), {f({61, 40}), f({40, 200})}),
      use(make<Dot>(0, 0, 0, dtype), {f({70, 40}), f({70, 136})}),
      use(make<Dot>(0, 0, 1, DType::kF32), {f({40, 24}), f({33, 40})}),
      use(make<Dot>(0, 1, 0, DType::kF32), {f({61, 67}), f({67, 101})}),
      use(make<Dot>(1, 1, 2, dtype), {f({3, 67, 31}), f({3, 70, 67})}),
  };
}

Graph readable_graph(const Case& c, DType dtype) {
  if (dtype != DType::kF16) return graph_for(c, dtype);
  Graph g;
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    TensorType type = c.inputs[i];
    if (type.dtype == kCompute) type.dtype = dtype;
    inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
  }
  const std::vector<Value> outputs = g.add(c.op, inputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool half = g.type(outputs[k]).dtype == DType::kF16;
    g.output(cat("y", k), half ? convert(g, outputs[k], DType::kF32) : outputs[k]);
  }
  return g;
}

std::vector<Case> longer_attention() {
  constexpr int64_t kBatch = 2, kTokens = 131, kHeads = 4, kKvHeads = 2;
  // The first row's documents begin at 0 and 70, the other's at 0, 100 and 129.
  Doubles begins;
  for (int64_t i = 0; i < kTokens; ++i) begins.push_back(i < 70 ? 0 : 70);
  for (int64_t i = 0; i < kTokens; ++i) begins.push_back(i < 100 ? 0 : i < 129 ? 100 : 129);
  const AttentionDropout none, whole{0.3, "noise"}, part{0.3, "noise", true};
  std::vector<Case> cases;
  for (const auto& [label, width, mask, dropout] :
       {std::tuple{"causal", 16, AttentionMask{}, none},
        {"wide, causal, part of the heads", 72, AttentionMask{}, part},
        {"window", 24, AttentionMask{true, 70}, none},
        {"wide, full", 128, AttentionMask{false}, none},
        {"documents, window, dropout", 40, AttentionMask{true, 90, true}, whole},
        {"documents, narrow window", 8, AttentionMask{true, 20, true}, none},
        {"no whole vectors", 12, AttentionMask{true, 90, true}, whole}}) {
    const TensorType q = t({kBatch, kTokens, kHeads, width}),
                     k = t({kBatch, kTokens, kKvHeads, width});
    Case forward{
        .label = label, .op = make<Attention>(0.3, mask, dropout), .inputs = {q, k, k}, .valid = 3};
    Case backward{.label = label,
                  .op = make<AttentionBackward>(0.3, mask, dropout),
                  .inputs = {q, k, k, q, w({kBatch, kHeads, kTokens}), q},
                  .valid = 3};
    for (Case* c : {&forward, &backward}) {
      if (mask.documents) {
        c->given[c->inputs.size()] = begins;
        c->inputs.push_back(ids({kBatch, kTokens}));
      }
      if (dropout.p > 0) c->inputs.push_back(keys(kBatch));
      if (dropout.part) c->inputs.push_back(ids({}));
      cases.push_back(*c);
    }
  }
  return cases;
}

std::vector<std::pair<Case, DType>> long_heads() {
  std::vector<std::pair<Case, DType>> cases;
  for (const auto& [classes, dtype] :
       {std::pair{int64_t{16411}, DType::kF32}, {60001, DType::kBF16}}) {
    cases.emplace_back(Case{.label = cat(classes, " classes"),
                            .op = make<LinearCrossEntropyBackward>(HeadGradients{true, false}),
                            .inputs = {t({3, 8}), t({classes, 8}), ids({3}), w({}), w({})},
                            .ids = classes,
                            .ignores = true},
                       dtype);
  }
  return cases;
}

std::vector<Case> wider_norms() {
  std::vector<Case> cases;
  for (int64_t width : {2051, 2056, 4099, 4104}) {
    const TensorType x = t({35, width}), row = t({width}), of_rows = w({35});
    for (bool adds : {false, true}) {
      const std::string size = cat(adds ? "_add" : "", " 35x", width);
      cases.push_back({.label = cat("rms_norm_backward", size),
                       .op = make<RmsNormBackward>(adds),
                       .inputs = {x, row, of_rows, x}});
      cases.push_back({.label = cat("layer_norm_backward", size),
                       .op = make<LayerNormBackward>(adds),
                       .inputs = {x, row, of_rows, of_rows, x}});
      if (!adds) continue;
      for (size_t last : {cases.size() - 1, cases.size() - 2}) cases[last].inputs.push_back(x);
    }
  }
  return cases;
}

}  // namespace tessera::cuda
