// Every primitive with the CUDA backend's own kernels on an emulated GPU, against the reference
// backend, with the bounds of the CPU's kernels; the same bits in every order of blocks, threads
// and streams.
#include <cmath>
#include <limits>
#include <set>

#include "backends/ref/kernels.h"
#include "base/random.h"
#include "ops/move/far_tier.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/registry.h"
#include "tests/backends/cpu/composite_cases.h"
#include "tests/cuda/emulated_run.h"
#include "tests/ops/op_samples.h"

namespace tessera::cuda {
namespace {

using Doubles = std::vector<double>;

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

// An op on given operands.
struct Use {
  std::string label;
  OpPtr op;
  std::vector<TensorType> types;
  ref::Feeds feeds;
};

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
           const std::map<size_t, Doubles>& given = {}) {
  Use use{std::string(op->name()), std::move(op), std::move(types), {}};
  for (size_t i = 0; i < use.types.size(); ++i) {
    auto values = given.find(i);
    use.feeds[cat("x", i)] = {values != given.end()
                                  ? values->second
                                  : random_values(use.types[i], low, high, bound, i + 1)};
  }
  return use;
}

bool has_launch(const Op& op) {
  return op.view_offsets().empty() && op.placement_offsets().empty();
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

// Shapes of several blocks that do not fill their last one, with and without whole vectors.
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

// Distance between neighbouring bf16 numbers around x.
double bf16_ulp(double x) {
  return std::ldexp(1.0, std::max(std::ilogb(x == 0 ? 1e-38 : x), -126) - 7);
}

// Equal but for the last bits that functions of the mathematical library may differ in.
void expect_close(DType dtype, const Doubles& got, const Doubles& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    double allowed = dtype == DType::kBF16  ? bf16_ulp(want[i])
                     : dtype == DType::kF32 ? 1e-6 * largest
                     : dtype == DType::kF64 ? 1e-14 * largest
                                            : 0;
    ASSERT_LE(std::abs(got[i] - want[i]), allowed)
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

void expect_same(const Doubles& got, const Doubles& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

// Ops that round nothing.
const std::set<std::string_view> kExact{
    "constant", "table",      "iota",        "transpose", "broadcast", "slice",      "pad",
    "select",   "compare",    "concatenate", "gather",    "neg",       "abs",        "max",
    "min",      "reduce_max", "convert",     "offload",   "fetch",     "random_bits"};

void check_primitive(EmulatedBackend& device, const Use& use) {
  SCOPED_TRACE(use.label);
  const Graph g = graph_of(use);
  const Doubles want = ref::run(g, use.feeds).outputs.at("y0")[0].data;
  const Doubles got = device.run(g, use.feeds).outputs[0].values;
  if (kExact.contains(use.op->name()))
    expect_same(got, want);
  else
    expect_close(g.type(g.outputs()[0].value).dtype, got, want);
}

TEST(CudaSamples, EveryPrimitiveHasAKernel) {
  EmulatedBackend device(1);
  std::set<std::string_view> launched;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Use& use : sampled_primitives(dtype)) {
      const std::vector<TensorType> outputs = use.op->infer({use.types, Mesh()});
      const Prepared prepared =
          device.backend().kernels().prepare({*use.op, use.types, outputs, Mesh()});
      EXPECT_TRUE(std::holds_alternative<Launch>(prepared)) << use.label;
      launched.insert(use.op->name());
    }
  }
  const std::set<std::string_view> storage{"stop_gradient", "reshape", "unflatten", "flatten",
                                           "unstack"};
  for (const OpRecord& record : op_registry()) {
    if (record.tier == Tier::kPrimitive) {
      EXPECT_NE(launched.contains(record.name), storage.contains(record.name)) << record.name;
    }
  }
}

TEST(CudaSamples, PrimitivesAgreeWithTheReference) {
  EmulatedBackend device(1);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
    for (const Use& use : sampled_primitives(dtype)) check_primitive(device, use);
}

TEST(CudaSamples, LargerPrimitivesAgreeWithTheReference) {
  EmulatedBackend device(2);
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (const Use& use : larger_primitives(dtype)) check_primitive(device, use);
}

TEST(CudaSamples, ConversionsBetweenAllDtypes) {
  EmulatedBackend device(1);
  const std::vector<DType> dtypes{DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                                  DType::kI64, DType::kI32, DType::kBool};
  for (DType from : dtypes) {
    for (DType to : dtypes) {
      if (to == DType::kF16) continue;  // only read as an operand here
      const Doubles values = from == DType::kBool ? Doubles{0, 1, 1, 0}
                             : is_float(from)     ? Doubles{-2.75, 0, 1.00390625, 300.5}
                                                  : Doubles{-3, 0, 1, 65537};
      Use use = use_of(make<Convert>(to), {{{4}, from}}, 0, 1, 1, {{0, values}});
      use.label = cat(name(from), " to ", name(to));
      check_primitive(device, use);
    }
  }
}

TEST(CudaSamples, IntegersAreExact) {
  EmulatedBackend device(1);
  for (DType dtype : {DType::kI32, DType::kI64}) {
    // Neighbours of 2^24 and 2^53, which floats of either size would confuse.
    const double big = dtype == DType::kI32 ? 16777217 : 9007199254740991;
    const TensorType x{{4}, dtype};
    const std::map<size_t, Doubles> given{{0, {big, -7, 7, 5}}, {1, {-1, 2, -2, 0}}};
    auto expect = [&](OpPtr op, std::vector<TensorType> types,
                      const std::map<size_t, Doubles>& values, const Doubles& want) {
      const Use use = use_of(std::move(op), std::move(types), 0, 1, 1, values);
      SCOPED_TRACE(use.label);
      expect_same(device.run(graph_of(use), use.feeds).outputs[0].values, want);
    };
    auto binary = [&](BinaryKind kind, const Doubles& want) {
      expect(make<Binary>(kind), {x, x}, given, want);
    };
    binary(BinaryKind::kAdd, {big - 1, -5, 5, 5});
    binary(BinaryKind::kSub, {big + 1, -9, 9, 5});
    binary(BinaryKind::kMul, {-big, -14, -14, 0});
    binary(BinaryKind::kDiv, {-big, -3, -3, -1});
    binary(BinaryKind::kMax, {big, 2, 7, 5});
    binary(BinaryKind::kMin, {-1, -7, -2, 0});
    expect(make<Reduce>(Reduction::kSum, std::vector<int64_t>{0}), {x}, {{0, {big - 1, 2, -1, 0}}},
           {big});
    expect(make<ScatterAdd>(2, dtype), {{{4}, DType::kI64}, x},
           {{0, {1, 1, 0, 1}}, {1, {big, -1, 4, 1}}}, {4, big});
  }
}

TEST(CudaSamples, OperandsWithoutElements) {
  EmulatedBackend device(1);
  using Dims = std::vector<int64_t>;
  const TensorType x{{0, 3}, DType::kF32}, no_ids{{0}, DType::kI64};
  for (const Use& use : {
           use_of(make<Unary>(UnaryKind::kExp), {x}, 0, 1, 1),
           use_of(make<Transpose>(Dims{1, 0}), {x}, 0, 1, 1),
           use_of(make<Iota>(x, 1), {}, 0, 1, 1),
           use_of(make<Gather>(), {x, no_ids}, 0, 1, 1),
           use_of(make<Reduce>(Reduction::kSum, Dims{0}), {x}, 0, 1, 1),
           use_of(make<ScatterAdd>(2, DType::kF32), {no_ids, x}, 0, 1, 1),
           use_of(make<Pad>(0, 1, 1, 2.5), {x}, 0, 1, 1),
           use_of(make<Dot>(0, 0, 0, DType::kF32), {x, {{0, 2}, DType::kF32}}, 0, 1, 1),
           use_of(make<Concatenate>(0), {x, {{1, 3}, DType::kF32}}, 0, 1, 1),
       }) {
    check_primitive(device, use);
  }
}

TEST(CudaSamples, NanAndInfinity) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EmulatedBackend device(1);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const TensorType x{{5}, dtype};
    const std::map<size_t, Doubles> both{{0, {kNan, 1, kInf, -kInf, kNan}},
                                         {1, {1, kNan, kInf, kInf, kNan}}};
    auto expect_reference = [&](OpPtr op, std::vector<TensorType> types,
                                const std::map<size_t, Doubles>& given) {
      const Use use = use_of(std::move(op), std::move(types), 0, 1, 1, given);
      SCOPED_TRACE(cat(use.op->key(), " ", name(dtype)));
      const Graph g = graph_of(use);
      expect_same(device.run(g, use.feeds).outputs[0].values,
                  ref::run(g, use.feeds).outputs.at("y0")[0].data);
    };
    for (auto kind : {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul, BinaryKind::kDiv,
                      BinaryKind::kMax, BinaryKind::kMin}) {
      expect_reference(make<Binary>(kind), {x, x}, both);
    }
    for (auto comparison : {Comparison::kEq, Comparison::kNe, Comparison::kLt, Comparison::kLe,
                            Comparison::kGt, Comparison::kGe}) {
      expect_reference(make<Compare>(comparison), {x, x}, both);
    }
    expect_reference(make<Unary>(UnaryKind::kIsFinite), {x}, both);
    expect_reference(make<Unary>(UnaryKind::kLog), {x}, {{0, {0, -1, 1, kInf, kNan}}});
    expect_reference(make<Select>(), {{{5}, DType::kBool}, x, x},
                     {{0, {0, 1, 1, 0, 0}}, {1, both.at(0)}, {2, {1, kNan, kNan, 2, 3}}});
    expect_reference(make<Reduce>(Reduction::kMax, std::vector<int64_t>{0}), {x},
                     {{0, {1, kNan, kInf, 2, 3}}});
    expect_reference(make<Convert>(DType::kBF16), {x},
                     {{0, {kNan, kInf, -kInf, ref::round_to(dtype, 3.4e38), -0.0}}});
    const Use to_integer = use_of(make<Convert>(DType::kI32), {x}, 0, 1, 1,
                                  {{0, {kNan, kInf, ref::round_to(dtype, -1e30), 0, -2.5}}});
    expect_same(device.run(graph_of(to_integer), to_integer.feeds).outputs[0].values,
                {0, 2147483647, -2147483648.0, 0, -2});
  }
}

// Orders of blocks and threads differ by seed.
TEST(CudaSamples, BitsDoNotDependOnTheOrderOfThreads) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::string> first;
    for (uint64_t seed : {0, 5, 6}) {
      EmulatedBackend device(seed);
      std::vector<std::string> bits;
      for (const Use& use : larger_primitives(dtype))
        bits.push_back(device.run(graph_of(use), use.feeds).outputs[0].bytes);
      if (first.empty()) first = bits;
      EXPECT_TRUE(bits == first) << name(dtype) << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
