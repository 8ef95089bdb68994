// Every composite with the CUDA backend's own kernels on an emulated GPU: at most 1.5 times as far
// from f64 as its definition in the same dtype, as the CPU's kernels are; the same bits in every
// order of blocks, threads and streams.
#include "backends/cuda/cuda_kernels.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/primitive/elementwise.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/cuda/emulated_run.h"

namespace tessera::cuda {
namespace {

using Doubles = std::vector<double>;

// Results of f16 cannot be read: they are given in f32.
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

void check_composite(EmulatedBackend& device, const Case& c, DType dtype) {
  SCOPED_TRACE(cat(c.label, " ", c.op->key(), " ", name(dtype)));
  const ref::Feeds feeds = feeds_for(c, dtype);
  const ref::Results exact = ref::run(graph_for(c, DType::kF64), feeds);
  const Graph g = graph_for(c, dtype);
  const ref::Results decomposed = ref::run(g, feeds);
  const EmulatedOutputs got = device.run(readable_graph(c, dtype), feeds);
  EXPECT_FALSE(got.decomposed) << "no fused kernel took the node";
  for (size_t k = 0; k < got.outputs.size(); ++k) {
    const Doubles& truth = exact.outputs.at(cat("y", k))[0].data;
    EXPECT_LE(rms(got.outputs[k].values, truth),
              error_bound(g.type(g.outputs()[k].value).dtype,
                          decomposed.outputs.at(cat("y", k))[0].data, truth))
        << "output " << k;
  }
}

TEST(CudaComposites, CompositesAreAsExactAsTheirDecompositionInF32) {
  EmulatedBackend device(1);
  for (const Case& c : composite_cases()) check_composite(device, c, DType::kF32);
}

TEST(CudaComposites, CompositesAreAsExactAsTheirDecompositionInBF16) {
  EmulatedBackend device(2);
  for (const Case& c : composite_cases())
    if (!c.f32_only) check_composite(device, c, DType::kBF16);
}

TEST(CudaComposites, CompositesAreAsExactAsTheirDecompositionInF16) {
  EmulatedBackend device(3);
  for (const Case& c : composite_cases())
    if (!c.f32_only) check_composite(device, c, DType::kF16);
}

// Attention of several tiles, none of which is whole, with all that it may have.
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

TEST(CudaComposites, LongerAttentionIsAsExactAsItsDecomposition) {
  EmulatedBackend device(4);
  for (const Case& c : longer_attention()) check_composite(device, c, DType::kBF16);
}

// The head in chunks of 128 rows gives what the whole gives, up to the order of the sums of dw.
TEST(CudaComposites, HeadInChunksIsTheWholeHead) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(name(dtype));
    const Case c{.label = "",
                 .op = make<LinearCrossEntropyBackward>(),
                 .inputs = {t({300, 24}), t({77, 24}), ids({300}), w({}), w({})},
                 .ids = 77,
                 .ignores = true};
    const ref::Feeds feeds = feeds_for(c, dtype);
    const Graph g = graph_for(c, dtype);
    EmulatedBackend device(1);
    const EmulatedOutputs whole = device.run(g, feeds);
    KernelTable in_chunks;
    register_composite_kernels(in_chunks, device.backend().device(), {}, 1);
    const EmulatedOutputs parts = device.run_launch(g, feeds, in_chunks);
    ASSERT_EQ(parts.outputs.size(), 4u);
    EXPECT_EQ(parts.outputs[0].bytes, whole.outputs[0].bytes) << "dx";
    for (size_t k = 1; k < 4; ++k) {
      const Doubles &got = parts.outputs[k].values, &want = whole.outputs[k].values;
      EXPECT_LE(rms(got, want), 1e-6 * rms(want, Doubles(want.size(), 0))) << "output " << k;
    }
  }
}

TEST(CudaComposites, ResultsMayShareTheBytesThatTheOpAllows) {
  EmulatedBackend device(3);
  const KernelTable& table = device.backend().kernels();
  int pairs = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : composite_cases()) {
      if (c.f32_only && dtype != DType::kF32) continue;
      SCOPED_TRACE(cat(c.label, " ", c.op->key(), " ", name(dtype)));
      const Graph g = graph_for(c, dtype);
      const ref::Feeds feeds = feeds_for(c, dtype);
      for (InPlacePair pair : c.op->in_place_pairs()) {
        const EmulatedOutputs apart = device.run_launch(g, feeds, table),
                              shared = device.run_launch(g, feeds, table, pair);
        for (size_t k = 0; k < apart.outputs.size(); ++k)
          EXPECT_TRUE(apart.outputs[k].bytes == shared.outputs[k].bytes) << "output " << k;
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 30);
}

// Orders of blocks and threads differ by seed.
TEST(CudaComposites, BitsDoNotDependOnTheOrderOfThreads) {
  for (const auto& [dtype, seeds] : {std::pair{DType::kBF16, std::vector<uint64_t>{0, 5, 6}},
                                     {DType::kF32, std::vector<uint64_t>{0, 7}}}) {
    std::vector<std::string> first;
    for (uint64_t seed : seeds) {
      EmulatedBackend device(seed);
      std::vector<std::string> bits;
      for (const Case& c : composite_cases()) {
        if (c.f32_only && dtype != DType::kF32) continue;
        for (const auto& output : device.run(graph_for(c, dtype), feeds_for(c, dtype)).outputs)
          bits.push_back(output.bytes);
      }
      if (first.empty()) first = bits;
      EXPECT_TRUE(bits == first) << name(dtype) << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
