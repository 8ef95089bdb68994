#include "tests/ops/op_samples.h"

#include "ops/collective/collective.h"
#include "ops/composite/adamw.h"
#include "ops/composite/add_bias.h"
#include "ops/composite/attention.h"
#include "ops/composite/cache_write.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/dropout.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/linear.h"
#include "ops/composite/lion.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/rope.h"
#include "ops/composite/scale.h"
#include "ops/composite/sgd.h"
#include "ops/composite/sum_n.h"
#include "ops/composite/sum_squares.h"
#include "ops/composite/swiglu.h"
#include "ops/composite/vocabulary_parallel.h"
#include "ops/move/far_tier.h"
#include "ops/move/flat_unit.h"
#include "ops/move/unstack.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/random.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

template <class T, class... Args>
OpPtr make(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

TensorType f(Shape shape) { return {std::move(shape), DType::kF64}; }
TensorType ints(Shape shape) { return {std::move(shape), DType::kI32}; }
TensorType keys(int64_t rows) { return {{rows}, DType::kI64}; }
TensorType flags(Shape shape) { return {std::move(shape), DType::kBool}; }

void add_elementwise(std::vector<OpSample>& s) {
  for (int k = 0; k <= static_cast<int>(UnaryKind::kIsFinite); ++k) {
    auto kind = static_cast<UnaryKind>(k);
    bool positive = kind == UnaryKind::kLog || kind == UnaryKind::kSqrt ||
                    kind == UnaryKind::kRsqrt || kind == UnaryKind::kAbs;
    s.push_back({"", make<Unary>(kind), {f({3, 5})}, positive ? 0.5 : -1.5, positive ? 2.0 : 1.5});
  }
  s.push_back({.op = make<Unary>(UnaryKind::kNot),
               .inputs = {flags({3, 5})},
               .low = 0,
               .integer_bound = 2});
  for (int k = 0; k < static_cast<int>(BinaryKind::kAnd); ++k) {
    auto kind = static_cast<BinaryKind>(k);
    bool positive = kind == BinaryKind::kDiv || kind == BinaryKind::kPow;
    s.push_back({"", make<Binary>(kind), {f({3, 5}), f({3, 5})}, positive ? 0.5 : -1.0, 2.0});
  }
  s.push_back({.op = make<Binary>(BinaryKind::kAnd),
               .inputs = {flags({7}), flags({7})},
               .low = 0,
               .integer_bound = 2});
  s.push_back({.op = make<Binary>(BinaryKind::kOr),
               .inputs = {flags({7}), flags({7})},
               .low = 0,
               .integer_bound = 2});
  s.push_back({"", make<Compare>(Comparison::kLt), {f({7}), f({7})}});
  s.push_back(
      {.op = make<Select>(), .inputs = {flags({3, 4}), f({3, 4}), f({3, 4})}, .integer_bound = 2});
  s.push_back({"", make<Convert>(DType::kF64), {f({4})}});
  s.push_back({"", make<StopGradient>(), {f({4})}});
}

void add_shaping(std::vector<OpSample>& s) {
  s.push_back({"", make<Constant>(f({2, 3}), 1.5), {}});
  s.push_back({"", make<Table>(DType::kF64, std::vector<double>{1, 0.5}), {}});
  s.push_back({"", make<Iota>(f({2, 3}), 1), {}});
  s.push_back(
      {.op = make<RandomBits>(Shape{2, 130}, "noise"), .inputs = {keys(3)}, .integer_bound = 1000});
  s.push_back({.label = "part of the lines",
               .op = make<RandomBits>(Shape{2, 3, 7}, "noise", TensorPart{2, 9}),
               .inputs = {keys(2), ints({})},
               .integer_bound = 7});
  s.push_back({.label = "part of a line",
               .op = make<RandomBits>(Shape{2, 150}, "noise", TensorPart{2, 300}),
               .inputs = {keys(2), ints({})},
               .integer_bound = 150});
  s.push_back({.label = "a number a row",
               .op = make<RandomBits>(Shape{}, "noise"),
               .inputs = {keys(3)},
               .integer_bound = 1000});
  s.push_back({"", make<Reshape>(Shape{6, 2}), {f({3, 4})}});
  s.push_back({"", make<Transpose>(std::vector<int64_t>{2, 0, 1}), {f({2, 3, 4})}});
  s.push_back({"", make<Broadcast>(Shape{2, 3, 4}, std::vector<int64_t>{0, 2}), {f({2, 4})}});
  s.push_back({"scalar", make<Broadcast>(Shape{2, 3}, std::vector<int64_t>{}), {f({})}});
  s.push_back({"", make<Slice>(1, 1, 3), {f({2, 4, 3})}});
  s.push_back({"", make<Pad>(1, 2, 1, 0.5), {f({2, 3})}});
  s.push_back({"", make<Concatenate>(1), {f({2, 1}), f({2, 3}), f({2, 2})}});
  s.push_back({.op = make<Gather>(), .inputs = {f({5, 3}), ints({2, 4})}, .integer_bound = 5});
  s.push_back({.op = make<ScatterAdd>(5, DType::kF64),
               .inputs = {ints({2, 4}), f({2, 4, 3})},
               .integer_bound = 5});
  s.push_back({"", make<Reduce>(Reduction::kSum, std::vector<int64_t>{0, 2}), {f({2, 3, 4})}});
  s.push_back({"", make<Reduce>(Reduction::kMax, std::vector<int64_t>{1}), {f({2, 3})}});
  s.push_back({"NT", make<Dot>(0, 1, 1, DType::kF64), {f({3, 4}), f({5, 4})}});
  s.push_back({"NN", make<Dot>(0, 1, 0, DType::kF64), {f({3, 4}), f({4, 5})}});
  s.push_back({"TN", make<Dot>(0, 0, 0, DType::kF64), {f({4, 3}), f({4, 5})}});
  s.push_back({"tokens", make<Dot>(0, 2, 1, DType::kF64), {f({2, 3, 4}), f({5, 4})}});
  s.push_back({"batched", make<Dot>(2, 3, 2, DType::kF64), {f({2, 2, 3, 4}), f({2, 2, 4, 5})}});
  s.push_back({"batched TN", make<Dot>(1, 1, 1, DType::kF64), {f({2, 4, 3}), f({2, 4, 5})}});
  s.push_back({"", make<Unflatten>(std::vector<UnitMember>{{0, {2, 3}}, {8, {4}}}), {f({16})}});
  s.push_back({"", make<Unstack>(3, 8), {f({3, 2, 4})}});
  s.push_back({"", make<Offload>(), {f({3, 4})}});
  s.push_back({"", make<Fetch>(), {f({3, 4})}});
  s.push_back({"", make<Flatten>(16, std::vector<int64_t>{8, 0}), {f({4}), f({2, 3})}});
}

void add_composites(std::vector<OpSample>& s) {
  s.push_back({"", make<Linear>(), {f({2, 3, 4}), f({5, 4})}});
  s.push_back({"bias", make<Linear>(), {f({2, 3, 4}), f({5, 4}), f({5})}});
  s.push_back({"", make<LinearDx>(), {f({2, 3, 5}), f({5, 4})}});
  s.push_back({"", make<LinearDx>(true), {f({2, 3, 5}), f({5, 4}), f({2, 3, 4})}});
  s.push_back({"", make<LinearDw>(), {f({2, 3, 5}), f({2, 3, 4})}});
  s.push_back({"", make<LinearDw>(true), {f({2, 3, 5}), f({2, 3, 4}), f({5, 4})}});
  s.push_back({.op = make<Embedding>(), .inputs = {ints({2, 3}), f({5, 4})}, .integer_bound = 5});
  s.push_back({.op = make<EmbeddingBackward>(5),
               .inputs = {ints({2, 3}), f({2, 3, 4})},
               .integer_bound = 5});
  s.push_back({.op = make<EmbeddingBackward>(5, false, true),
               .inputs = {ints({2, 3}), f({2, 3, 4}), f({5, 4})},
               .integer_bound = 5});
  s.push_back({.op = make<RmsNorm>(1e-5), .inputs = {f({2, 3, 5}), f({5})}, .statistics = {1}});
  s.push_back({"", make<RmsNormBackward>(), {f({2, 3, 5}), f({5}), f({2, 3}), f({2, 3, 5})}});
  s.push_back({"",
               make<RmsNormBackward>(true),
               {f({2, 3, 5}), f({5}), f({2, 3}), f({2, 3, 5}), f({2, 3, 5})}});
  s.push_back({.op = make<LayerNorm>(1e-5, true),
               .inputs = {f({2, 3, 5}), f({5}), f({5})},
               .statistics = {1, 2}});
  s.push_back({.label = "no bias",
               .op = make<LayerNorm>(1e-5, false),
               .inputs = {f({2, 3, 5}), f({5})},
               .statistics = {1, 2}});
  s.push_back(
      {"", make<LayerNormBackward>(), {f({2, 3, 5}), f({5}), f({2, 3}), f({2, 3}), f({2, 3, 5})}});
  s.push_back({"",
               make<LayerNormBackward>(true),
               {f({2, 3, 5}), f({5}), f({2, 3}), f({2, 3}), f({2, 3, 5}), f({2, 3, 5})}});
  s.push_back({"", make<AddBias>(), {f({2, 3, 5}), f({5})}});
  s.push_back({"", make<AddBiasBackward>(), {f({2, 3, 5})}});
  s.push_back({"", make<Scale>(-2.75), {f({3, 5})}});
  for (GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
    s.push_back({std::string(name(kind)), make<Gelu>(kind), {f({7, 9})}, -4, 4});
    s.push_back({std::string(name(kind)), make<GeluBackward>(kind), {f({7, 9}), f({7, 9})}, -4, 4});
  }
  s.push_back({.op = make<Dropout>(0.3, "noise"),
               .inputs = {f({3, 4, 5}), keys(3)},
               .integer_bound = 1000});
  s.push_back({.label = "part",
               .op = make<Dropout>(0.3, "noise", TensorPart{1, 12}),
               .inputs = {f({3, 4, 5}), keys(3), ints({})},
               .integer_bound = 9});
  s.push_back({"", make<Rope>(std::vector<double>{1, 0.1}, false), {f({2, 5, 3, 4})}});
  s.push_back({"partial", make<Rope>(std::vector<double>{0.7}, true), {f({1, 4, 2, 5})}});
  s.push_back({"scaled", make<Rope>(RotaryAngles({0.7}, 1.5), false), {f({1, 4, 2, 5})}});
  for (auto [label, heads, mask] : {std::tuple{"causal", 4, AttentionMask{}},
                                    {"window", 2, AttentionMask{true, 3}},
                                    {"full", 2, AttentionMask{false, 0}}}) {
    s.push_back({.label = label,
                 .op = make<Attention>(0.5, mask),
                 .inputs = {f({2, 6, heads, 4}), f({2, 6, 2, 4}), f({2, 6, 2, 4})},
                 .statistics = {1}});
  }
  s.push_back({"",
               make<AttentionBackward>(0.5, AttentionMask{}),
               {f({2, 6, 4, 4}), f({2, 6, 2, 4}), f({2, 6, 2, 4}), f({2, 6, 4, 4}), f({2, 4, 6}),
                f({2, 6, 4, 4})}});
  for (bool part : {false, true}) {
    AttentionDropout dropout{0.4, "noise", part};
    OpSample forward{.label = "dropout",
                     .op = make<Attention>(0.5, AttentionMask{}, dropout),
                     .inputs = {f({2, 7, 4, 4}), f({2, 7, 2, 4}), f({2, 7, 2, 4}), keys(2)},
                     .integer_bound = 1000,
                     .statistics = {1}};
    OpSample backward{.label = "dropout",
                      .op = make<AttentionBackward>(0.5, AttentionMask{}, dropout),
                      .inputs = {f({2, 7, 4, 4}), f({2, 7, 2, 4}), f({2, 7, 2, 4}), f({2, 7, 4, 4}),
                                 f({2, 4, 7}), f({2, 7, 4, 4}), keys(2)},
                      .integer_bound = 1000};
    for (OpSample* sample : {&forward, &backward}) {
      if (part) sample->inputs.push_back(ints({}));
      s.push_back(*sample);
    }
  }
  // Documents of 2, 1 and 3 tokens, and of 5 and 1.
  const std::vector<double> starts{0, 0, 2, 3, 3, 3, 0, 0, 0, 0, 0, 5};
  s.push_back({.label = "documents",
               .op = make<Rope>(std::vector<double>{1, 0.1}, false, true),
               .inputs = {f({2, 6, 3, 4}), ints({2, 6})},
               .given = {{1, starts}}});
  for (auto [label, window, p] :
       {std::tuple{"documents", 0, 0.0}, {"documents of a window", 2, 0.4}}) {
    const AttentionMask mask{true, window, true};
    const AttentionDropout dropout{p, "noise", false};
    OpSample forward{.label = label,
                     .op = make<Attention>(0.5, mask, dropout),
                     .inputs = {f({2, 6, 4, 4}), f({2, 6, 2, 4}), f({2, 6, 2, 4}), ints({2, 6})},
                     .integer_bound = 1000,
                     .statistics = {1},
                     .given = {{3, starts}}};
    OpSample backward{.label = label,
                      .op = make<AttentionBackward>(0.5, mask, dropout),
                      .inputs = {f({2, 6, 4, 4}), f({2, 6, 2, 4}), f({2, 6, 2, 4}), f({2, 6, 4, 4}),
                                 f({2, 4, 6}), f({2, 6, 4, 4}), ints({2, 6})},
                      .integer_bound = 1000,
                      .given = {{6, starts}}};
    for (OpSample* sample : {&forward, &backward}) {
      if (p > 0) sample->inputs.push_back(keys(2));
      s.push_back(*sample);
    }
  }
  // Places 0 to 4 of 9.
  s.push_back({.op = make<RopeAt>(std::vector<double>{1, 0.1}, 9),
               .inputs = {f({2, 5, 3, 4}), ints({2})},
               .integer_bound = 5});
  s.push_back({.op = make<CacheWrite>(),
               .inputs = {f({5, 9, 3, 4}), f({2, 5, 3, 4}), ints({2}), ints({2})},
               .integer_bound = 5,
               .given = {{3, {3, 1}}}});  // rows are all different
  s.push_back({.op = make<CachedAttention>(0.5, 6),
               .inputs = {f({2, 5, 4, 4}), f({5, 9, 2, 4}), f({5, 9, 2, 4}), ints({2}), ints({2})},
               .integer_bound = 5});
  s.push_back({"", make<Swiglu>(), {f({3, 5}), f({3, 5})}, -2, 2});
  s.push_back({"", make<SwigluBackward>(), {f({3, 5}), f({3, 5}), f({3, 5})}});
  s.push_back({.op = make<LinearCrossEntropy>(),
               .inputs = {f({6, 4}), f({5, 4}), ints({6})},
               .integer_bound = 5});
  // Both gradients, and those of a frozen w and of a constant x; added to a sum.
  for (auto [label, wanted] : {std::pair{"", HeadGradients{}},
                               {"dx", HeadGradients{true, false}},
                               {"dw", HeadGradients{false, true}},
                               {"", HeadGradients{true, true, true}},
                               {"dw", HeadGradients{false, true, true}}}) {
    OpSample of_head{.label = label,
                     .op = make<LinearCrossEntropyBackward>(wanted),
                     .inputs = {f({6, 4}), f({5, 4}), ints({6}), f({}), f({})},
                     .integer_bound = 5};
    OpSample of_part{.label = label,
                     .op = make<LinearLogSumExpBackward>(wanted),
                     .inputs = {f({7, 4}), f({4, 4}), ints({7}), ints({}), f({7}), f({7}), f({7})},
                     .integer_bound = 5};
    if (wanted.adds) {
      of_head.inputs.push_back(f({5, 4}));
      of_part.inputs.push_back(f({4, 4}));
    }
    s.push_back(of_head);
    s.push_back(of_part);
  }
  // Targets in [0, 5) of 4 rows, of which `valid` is 0 or 1.
  s.push_back({.op = make<LinearLogSumExp>(),
               .inputs = {f({7, 4}), f({4, 4}), ints({7}), ints({})},
               .integer_bound = 5});
  s.push_back({.label = "partial",
               .op = make<Embedding>(true),
               .inputs = {ints({2, 3}), f({4, 4})},
               .integer_bound = 6});
  s.push_back({.label = "partial",
               .op = make<EmbeddingBackward>(4, true),
               .inputs = {ints({2, 3}), f({2, 3, 4})},
               .integer_bound = 6});
  s.push_back({.op = make<CountTargets>(), .inputs = {ints({2, 3})}, .integer_bound = 5});
  for (bool rounds : {false, true}) {
    s.push_back({.label = rounds ? "rounds" : "",
                 .op = make<AdamW>(0.9, 0.95, 1e-8, rounds),
                 .inputs = {f({7}),
                            f({7}),
                            f({7}),
                            f({7}),
                            f({}),
                            f({}),
                            flags({}),
                            {{}, DType::kI64},
                            {{2}, DType::kI64},
                            f({2})},
                 .low = 0.1,
                 .integer_bound = 2,
                 .statistics = rounds ? std::vector<int>{3} : std::vector<int>{},
                 .given = {{8, {0, 3}}}});  // where segments begin, from 0 on
  }
  for (const OpPtr& op : {make<Sgd>(0.9), make<Lion>(0.9, 0.95)}) {
    s.push_back(
        {.op = op,
         .inputs = {f({7}), f({7}), f({7}), f({}), f({}), flags({}), {{2}, DType::kI64}, f({2})},
         .low = 0.1,
         .integer_bound = 2,
         .given = {{6, {0, 3}}}});
  }
  s.push_back({"", make<SumSquares>(), {f({3, 4})}});
  s.push_back({"", make<SumN>(), {f({3, 4}), f({3, 4}), f({3, 4})}});
}

void add_collectives(std::vector<OpSample>& s) {
  Mesh mesh({{"replicate", 2}, {"shard", 3}});
  AxisSet shard = mesh.axis("shard"), both = shard | mesh.axis("replicate");
  auto varying = [&](Shape shape, AxisSet axes) {
    return TensorType{std::move(shape), DType::kF64, axes};
  };
  s.push_back({.op = make<VaryOp>(shard), .inputs = {f({2, 3})}, .mesh = mesh});
  s.push_back({.op = make<AsReplicatedOp>(shard), .inputs = {varying({2, 3}, both)}, .mesh = mesh});
  s.push_back({.op = make<AllReduceOp>(both, Reduction::kSum),
               .inputs = {varying({2, 3}, both)},
               .mesh = mesh});
  s.push_back({.label = "one axis of two",
               .op = make<AllReduceOp>(shard, Reduction::kSum),
               .inputs = {varying({2, 3}, both)},
               .mesh = mesh});
  for (auto [kind, shape] : {std::pair{CollectiveKind::kAllGather, Shape{2, 3}},
                             {CollectiveKind::kReduceScatter, Shape{2, 6}},
                             {CollectiveKind::kGatherReplicated, Shape{2, 3}},
                             {CollectiveKind::kAllToAll, Shape{2, 6}}}) {
    s.push_back({.op = make<Collective>(kind, shard, 1, kind == CollectiveKind::kAllToAll ? 0 : 1,
                                        DType::kF64),
                 .inputs = {varying(shape, shard)},
                 .mesh = mesh});
  }
  s.push_back({.op = make<Collective>(CollectiveKind::kLocalSlice, shard, 1, 1, DType::kF64),
               .inputs = {f({2, 6})},
               .mesh = mesh});
  s.push_back({.op = make<AxisIndex>(both), .inputs = {}, .mesh = mesh});
}

}  // namespace

std::vector<OpSample> op_samples() {
  std::vector<OpSample> samples;
  add_elementwise(samples);
  add_shaping(samples);
  add_composites(samples);
  add_collectives(samples);
  return samples;
}

}  // namespace tessera
