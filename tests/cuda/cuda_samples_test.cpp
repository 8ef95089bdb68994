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
#include "tests/backends/cpu/primitive_bound.h"
#include "tests/cuda/cuda_uses.h"
#include "tests/cuda/emulated_run.h"
#include "tests/ops/op_samples.h"

namespace tessera::cuda {
namespace {

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
