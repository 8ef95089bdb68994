// Every composite with the CUDA backend's own kernels on an emulated GPU: at most 1.5 times as far
// from f64 as its definition in the same dtype, as the CPU's kernels are; the same bits in every
// order of blocks, threads and streams.
#include <cmath>
#include <map>
#include <string_view>

#include "backends/cuda/cuda_kernels.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/primitive/elementwise.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/cuda/cuda_uses.h"
#include "tests/cuda/emulated_run.h"

namespace tessera::cuda {
namespace {

// Composites that have no kernel for GPUs, and why: they run by their definition there.
const std::map<std::string_view, std::string_view> kWithoutKernel{};

void check_composite(EmulatedBackend& device, const Case& c, DType dtype) {
  SCOPED_TRACE(cat(c.label, " ", c.op->key(), " ", name(dtype)));
  const ref::Feeds feeds = feeds_for(c, dtype);
  const ref::Results exact = ref::run(graph_for(c, DType::kF64), feeds);
  const Graph g = graph_for(c, dtype);
  const ref::Results decomposed = ref::run(g, feeds);
  const GraphResults got = device.run(readable_graph(c, dtype), feeds);
  EXPECT_EQ(got.decomposed, kWithoutKernel.contains(c.op->name()))
      << "a fused kernel takes each node but those of kWithoutKernel";
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

TEST(CudaComposites, GradientsOfWiderNormsAreAsExactAsTheirDecomposition) {
  EmulatedBackend device(5);
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (const Case& c : wider_norms()) check_composite(device, c, dtype);
}

TEST(CudaComposites, LongerAttentionIsAsExactAsItsDecomposition) {
  EmulatedBackend device(4);
  for (const Case& c : longer_attention()) check_composite(device, c, DType::kBF16);
}

// All scores of a query are the same, so that the highest one stays over all tiles, and what it
// rounds to as a power of two must not add up.
TEST(CudaComposites, SumsOfLongAttentionDoNotDrift) {
  EmulatedBackend device(4, "quick");
  const int64_t tokens = 1024, width = 8;
  const TensorType type{{1, tokens, 1, width}, DType::kBF16};
  Doubles queries;
  for (int64_t t = 0; t < tokens; ++t)
    queries.insert(queries.end(), width, 8 + static_cast<double>(t % 32) / 4);
  const Doubles tens(static_cast<size_t>(tokens * width), 10);
  Graph g;
  std::vector<Value> inputs;
  for (const char* name : {"q", "k", "v"})
    inputs.push_back(g.input(name, InputKind::kArgument, type));
  const std::vector<Value> results = g.add(make<Attention>(0.125, AttentionMask{}), inputs);
  g.output("o", results[0]);
  g.output("lse", results[1]);
  const GraphResults got = device.run(g, {{"q", {queries}}, {"k", {tens}}, {"v", {tens}}});
  for (int64_t t = 0; t < tokens; ++t)
    ASSERT_NEAR(got.outputs[1].values[static_cast<size_t>(t)],
                10 * queries[static_cast<size_t>(t * width)] + std::log(static_cast<double>(t + 1)),
                4e-5)
        << t;
}

// Gradients of attention whose scores' gradients are kept for all heads, for one pair of a row and
// a key/value head at a time, or for none, so that they are computed again: the same bits.
TEST(CudaComposites, AttentionGradientsAreTheSameHoweverScoresAreKept) {
  EmulatedBackend device(4);
  int compared = 0;
  for (const Case& c : longer_attention()) {
    // Those of tiles; plain kernels take a width of 12.
    if (c.op->name() != "attention_backward" || c.inputs[0].shape[3] % 8 != 0) continue;
    SCOPED_TRACE(c.label);
    const Graph g = graph_for(c, DType::kBF16);
    const ref::Feeds feeds = feeds_for(c, DType::kBF16);
    const int64_t of_a_pair =
        2 * 192 * 192 * 2;  // two heads share keys; 131 tokens fill three tiles
    std::vector<GraphResults> results;
    for (int64_t bytes : {kSlopeBytes, of_a_pair, of_a_pair - 1}) {
      KernelTable table;
      register_composite_kernels(table, device.backend().device(), {}, kHeadRows, {}, bytes);
      results.push_back(device.run_launch(g, feeds, table));
    }
    for (size_t way : {1, 2}) {
      for (size_t k = 0; k < 3; ++k)
        EXPECT_TRUE(results[way].outputs[k].bytes == results[0].outputs[k].bytes)
            << "way " << way << ", output " << k;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

TEST(CudaComposites, HeadsOfManyClassesAreAsExactAsTheirDecomposition) {
  EmulatedBackend device(6);
  for (const auto& [c, dtype] : long_heads()) check_composite(device, c, dtype);
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
    const GraphResults whole = device.run(g, feeds);
    KernelTable in_chunks;
    register_composite_kernels(in_chunks, device.backend().device(), {}, 128);
    const GraphResults parts = device.run_launch(g, feeds, in_chunks);
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
      if (kWithoutKernel.contains(c.op->name())) continue;
      SCOPED_TRACE(cat(c.label, " ", c.op->key(), " ", name(dtype)));
      const Graph g = graph_for(c, dtype);
      const ref::Feeds feeds = feeds_for(c, dtype);
      for (InPlacePair pair : c.op->in_place_pairs()) {
        const GraphResults apart = device.run_launch(g, feeds, table),
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
