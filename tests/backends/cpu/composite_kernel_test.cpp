// Every composite on the CPU backend, as a graph node: its error against f64 is at most 1.5 times
// that of its decomposition, run by the reference backend in the same dtype. Odd shapes, every
// instruction set, and the same bits for every number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "backends/cpu/cpu_backend.h"
#include "backends/ref/interpreter.h"
#include "backends/ref/kernels.h"
#include "base/float16.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/vocabulary_parallel.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/registry.h"
#include "tests/backends/cpu/composite_bound.h"

namespace tessera {
namespace {

double load(DType dtype, const void* data, size_t i) {
  switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kBF16: return static_cast<float>(static_cast<const BF16*>(data)[i]);
    case DType::kF16: return static_cast<float>(static_cast<const F16*>(data)[i]);
    case DType::kI64: return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    default: return 0;
  }
}

void store(DType dtype, void* data, size_t i, double x) {
  switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[i] = static_cast<float>(x); break;
    case DType::kBF16: static_cast<BF16*>(data)[i] = BF16(static_cast<float>(x)); break;
    case DType::kF16: static_cast<F16*>(data)[i] = F16(static_cast<float>(x)); break;
    case DType::kI32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(x); break;
    case DType::kI64: static_cast<int64_t*>(data)[i] = static_cast<int64_t>(x); break;
    case DType::kBool: static_cast<uint8_t*>(data)[i] = x != 0; break;
    default: break;
  }
}

struct Outputs {
  std::vector<std::vector<double>> values;
  std::vector<std::string> bytes;
  bool decomposed = false;
};

Outputs run_cpu(const Graph& g, const ref::Feeds& feeds, int threads, cpu::Isa isa) {
  cpu::CpuBackend backend(threads, isa);
  auto executable = backend.compile_host(g);
  HostState state;
  HostArenas arenas(executable->memory());
  std::memset(arenas.near().data(), 0xff, static_cast<size_t>(arenas.bytes()));  // NaN till written
  executable->bind(state, arenas);
  std::map<std::string, HostBuffer> buffers;
  std::map<std::string, const void*> arguments;
  for (const GraphInput& input : g.inputs()) {
    const TensorType& type = g.type(input.value);
    HostBuffer buffer(std::max<int64_t>(type.bytes(), 1));
    for (size_t i = 0; i < static_cast<size_t>(type.elements()); ++i)
      store(type.dtype, buffer.data(), i, feeds.at(input.name)[0][i]);
    arguments[input.name] = buffer.data();
    buffers[input.name] = std::move(buffer);
  }
  executable->run(arguments);
  Outputs result;
  result.decomposed = executable->graph().nodes().size() != g.nodes().size();
  for (const GraphOutput& output : g.outputs()) {
    const TensorType& type = g.type(output.value);
    const void* data = executable->output(output.name);
    std::vector<double> values;
    for (size_t i = 0; i < static_cast<size_t>(type.elements()); ++i)
      values.push_back(load(type.dtype, data, i));
    result.values.push_back(values);
    result.bytes.emplace_back(static_cast<const char*>(data), static_cast<size_t>(type.bytes()));
  }
  return result;
}

void check(const Case& c, DType dtype) {
  SCOPED_TRACE(cat(c.label, " ", name(dtype)));
  ref::Feeds feeds = feeds_for(c, dtype);
  ref::Results exact = ref::run(graph_for(c, DType::kF64), feeds);
  Graph g = graph_for(c, dtype);
  ref::Results decomposed = ref::run(g, feeds);
  for (cpu::Isa isa : cpu::kIsas) {
    if (isa > cpu::detect_isa()) continue;
    SCOPED_TRACE(name(isa));
    Outputs one = run_cpu(g, feeds, 1, isa);
    EXPECT_FALSE(one.decomposed) << "no fused kernel took the node";
    for (int threads : {2, 3, 5})
      EXPECT_EQ(run_cpu(g, feeds, threads, isa).bytes, one.bytes) << threads << " threads";
    for (size_t k = 0; k < one.values.size(); ++k) {
      const auto& truth = exact.outputs.at(cat("y", k))[0].data;
      EXPECT_LE(rms(one.values[k], truth),
                error_bound(g.type(g.outputs()[k].value).dtype,
                            decomposed.outputs.at(cat("y", k))[0].data, truth))
          << "output " << k;
    }
  }
}

TEST(CompositeKernels, AreAsExactAsTheirDecompositionInF32) {
  for (const Case& c : composite_cases()) check(c, DType::kF32);
}

TEST(CompositeKernels, AreAsExactAsTheirDecompositionInBF16) {
  for (const Case& c : composite_cases()) {
    if (!c.f32_only) check(c, DType::kBF16);
  }
}

TEST(CompositeKernels, AreAsExactAsTheirDecompositionInF16) {
  for (const Case& c : composite_cases()) {
    if (!c.f32_only) check(c, DType::kF16);
  }
}

TEST(CompositeKernels, EveryCompositeHasACase) {
  std::map<std::string_view, int> seen;
  auto all = composite_cases();
  for (const Case& c : all) ++seen[c.op->name()];
  for (const OpRecord& record : op_registry()) {
    if (record.tier != Tier::kComposite) continue;
    EXPECT_GT(seen[record.name], 0) << record.name;
  }
}

TEST(LinearLogSumExp, PartWithoutColumns) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Case c{.label = "",
           .op = make<LinearLogSumExp>(),
           .inputs = {t({9, 17}), t({40, 17}), ids({9}), ids({})},
           .ids = 40,
           .valid = 0};
    Outputs out = run_cpu(graph_for(c, dtype), feeds_for(c, dtype), 2, cpu::detect_isa());
    EXPECT_FALSE(out.decomposed);
    EXPECT_EQ(out.values[0], std::vector<double>(9, -std::numeric_limits<double>::infinity()));
    EXPECT_EQ(out.values[1], std::vector<double>(9, 0));
  }
}

constexpr int64_t kRows = 40, kWidth = 33, kClasses = 77, kPart = 48;

// Sums and gradients from three parts of 48 rows of w, of which 48, 29 and 0 are classes.
std::vector<Value> from_parts(Graph& g, Value x, Value w, Value targets, Value dloss,
                              Value dsquares) {
  std::vector<std::vector<Value>> parts;  // operands, then lse and hit
  Value highest{}, sum{}, hit{};
  auto added = [&](Value a, Value b) { return a ? add(g, a, b) : b; };
  for (int64_t i = 0; i < 3; ++i) {
    Value begin = constant_like(g, targets, static_cast<double>(i * kPart));
    auto valid = static_cast<double>(std::clamp<int64_t>(kClasses - i * kPart, 0, kPart));
    parts.push_back({x, slice(g, w, 0, i * kPart, (i + 1) * kPart), sub(g, targets, begin),
                     constant(g, {{}, DType::kI32}, valid)});
    for (Value v : g.add(make<LinearLogSumExp>(), parts.back())) parts.back().push_back(v);
    highest = highest ? binary(g, BinaryKind::kMax, highest, parts.back()[4]) : parts.back()[4];
    hit = added(hit, parts.back()[5]);
  }
  for (const auto& p : parts) sum = added(sum, unary(g, UnaryKind::kExp, sub(g, p[4], highest)));
  Value lse = add(g, highest, unary(g, UnaryKind::kLog, sum));
  Value counted = compare(g, Comparison::kNe, targets, constant_like(g, targets, kIgnoreIndex));
  Value zeros = constant_like(g, lse, 0);
  Value loss = reduce_sum(g, select(g, counted, sub(g, lse, hit), zeros), {0});
  Value squares = reduce_sum(g, select(g, counted, mul(g, lse, lse), zeros), {0});
  Value drow = select(g, counted, broadcast(g, dloss, g.shape(lse), {}), zeros), dx{};
  Value dsquare = select(g, counted, mul(g, lse, broadcast(g, dsquares, g.shape(lse), {})), zeros);
  Value dsum = add(g, drow, add(g, dsquare, dsquare));
  std::vector<Value> dw;
  for (const auto& p : parts) {
    Value dlse = mul(g, dsum, unary(g, UnaryKind::kExp, sub(g, p[4], lse)));
    auto d = g.add(make<LinearLogSumExpBackward>(),
                   {p[0], p[1], p[2], p[3], p[4], dlse, sub(g, zeros, drow)});
    dx = added(dx, d[0]);
    dw.push_back(d[1]);
  }
  return {dx, concatenate(g, dw, 0), loss, squares};
}

TEST(LinearLogSumExp, PartsTogetherAreLinearCrossEntropy) {
  Case c{.label = "",
         .op = make<LinearCrossEntropyBackward>(),
         .inputs = {t({kRows, kWidth}), t({3 * kPart, kWidth}), ids({kRows}), w({}), w({})},
         .ids = kClasses,
         .ignores = true};
  for (auto [dtype, tolerance] : {std::pair{DType::kF32, 1e-6}, {DType::kBF16, 0x1p-7}}) {
    SCOPED_TRACE(name(dtype));
    Graph g;
    std::vector<Value> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      TensorType type = c.inputs[i];
      if (type.dtype == kCompute) type.dtype = dtype;
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
    }
    auto parts = from_parts(g, inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
    inputs[1] = slice(g, inputs[1], 0, 0, kClasses);
    auto whole = g.add(c.op, inputs);
    for (size_t k = 0; k < 4; ++k) {
      g.output(cat("part", k), parts[k]);
      g.output(cat("whole", k), whole[k]);
    }
    Outputs out = run_cpu(g, feeds_for(c, dtype), 2, cpu::detect_isa());
    // Padding has no gradient.
    std::vector<double>&dw = out.values[2], tail(dw.begin() + kClasses * kWidth, dw.end());
    EXPECT_EQ(tail, std::vector<double>(tail.size(), 0));
    dw.resize(kClasses * kWidth);
    for (size_t k = 0; k < 4; ++k) {
      const auto &part = out.values[2 * k], &expected = out.values[2 * k + 1];
      EXPECT_LE(rms(part, expected), tolerance * rms(expected, std::vector(expected.size(), 0.0)))
          << "output " << k;
    }
  }
}

}  // namespace
}  // namespace tessera
