// Every op with the CUDA backend's own kernels on an emulated GPU, against the reference backend,
// with the bounds of the CPU's kernels; the same bits in every order of blocks, threads and
// streams.
#include <cmath>
#include <limits>
#include <set>

#include "backends/ref/kernels.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/registry.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/cuda/cuda_uses.h"
#include "tests/cuda/emulated_run.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kSeeds[] = {1, 2, 3};

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

// What rms_norm to adamw compute is at most 1.5 times as far from f64 as their definition.
void check_composite(EmulatedBackend& device, const Case& c, DType dtype) {
  SCOPED_TRACE(cat(c.label, " ", c.op->key(), " ", name(dtype)));
  const ref::Feeds feeds = feeds_for(c, dtype);
  const ref::Results exact = ref::run(graph_for(c, DType::kF64), feeds);
  const Graph g = graph_for(c, dtype);
  const ref::Results decomposed = ref::run(g, feeds);
  const GraphResults got = device.run(readable_graph(c, dtype), feeds);
  EXPECT_FALSE(got.decomposed) << "no fused kernel took the node";
  for (size_t k = 0; k < got.outputs.size(); ++k) {
    const Doubles& truth = exact.outputs.at(cat("y", k))[0].data;
    EXPECT_LE(rms(got.outputs[k].values, truth),
              error_bound(g.type(g.outputs()[k].value).dtype,
                          decomposed.outputs.at(cat("y", k))[0].data, truth))
        << "output " << k;
  }
}

TEST(CudaSamples, CompositesAreAsExactAsTheirDecompositionInF32) {
  EmulatedBackend device(1);
  for (const Case& c : composite_cases()) check_composite(device, c, DType::kF32);
}

TEST(CudaSamples, CompositesAreAsExactAsTheirDecompositionInBF16) {
  EmulatedBackend device(2);
  for (const Case& c : composite_cases())
    if (!c.f32_only) check_composite(device, c, DType::kBF16);
}

TEST(CudaSamples, CompositesAreAsExactAsTheirDecompositionInF16) {
  EmulatedBackend device(3);
  for (const Case& c : composite_cases())
    if (!c.f32_only) check_composite(device, c, DType::kF16);
}

TEST(CudaSamples, LongerAttentionIsAsExactAsItsDecomposition) {
  EmulatedBackend device(4);
  for (const Case& c : longer_attention()) check_composite(device, c, DType::kBF16);
}

// Orders of blocks and threads differ by seed.
TEST(CudaSamples, BitsDoNotDependOnTheOrderOfThreads) {
  std::vector<std::string> first;
  for (uint64_t seed : kSeeds) {
    EmulatedBackend device(seed);
    std::vector<std::string> bits;
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Use& use : larger_primitives(dtype))
        bits.push_back(device.run(graph_of(use), use.feeds).outputs[0].bytes);
      for (const Case& c : composite_cases()) {
        if (c.f32_only && dtype != DType::kF32) continue;
        for (const auto& output : device.run(graph_for(c, dtype), feeds_for(c, dtype)).outputs)
          bits.push_back(output.bytes);
      }
    }
    if (first.empty()) first = bits;
    EXPECT_TRUE(bits == first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tessera::cuda
