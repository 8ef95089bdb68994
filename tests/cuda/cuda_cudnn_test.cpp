// Attention through cuDNN, whose double runs the graphs of operations on the host: as exact as the
// CPU's kernels have to be, planned to the byte, the same bits in every run; and what it declines
// runs on own kernels and says why.
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/described_backend.h"
#include "ops/composite/attention.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/cuda/cuda_uses.h"
#include "tests/cuda/emulated_run.h"
#include "tests/models/golden_model.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

using Attentions = DescribedBackend::Attentions;

const char* version() {
  const char* chosen = std::getenv("TESSERA_EMULATED_CUDNN_VERSION");
  return chosen ? chosen : "91900";
}
bool in_order() { return std::string(version()) >= "92500"; }

// The program loads libraries once: one variant a process, "quick" or what
// TESSERA_EMULATED_VARIANT says, with cuDNN.
std::string variant() {
  const char* chosen = std::getenv("TESSERA_EMULATED_VARIANT");
  return cat(chosen ? chosen : "quick", "_cudnn");
}
// The emulated GPU where the program finds it, without a backend.
struct EmulatedGpu : EmulatedCuda {
  explicit EmulatedGpu(int seed = 1) : EmulatedCuda(variant(), static_cast<uint64_t>(seed)) {
    setenv(kLibrariesVariable, cat(TESSERA_EMULATED_GPU, "/", variant()).c_str(), 1);
  }
};

// Causal attention with all that cuDNN takes: groups, windows, lengths that fill no tile.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (auto [batch, length, heads, kv, size, window] : {std::tuple{2, 64, 2, 2, 64, 0},
                                                        {1, 33, 4, 2, 16, 0},
                                                        {2, 70, 3, 1, 32, 9},
                                                        {1, 131, 2, 2, 8, 64},
                                                        {3, 5, 6, 3, 128, 0},
                                                        {1, 1, 2, 1, 256, 0},
                                                        {2, 17, 4, 4, 72, 3}}) {
    const AttentionMask mask{true, window};
    const TensorType q = t({batch, length, heads, size}), k = t({batch, length, kv, size});
    const std::string label = cat("T=", length, " heads ", heads, "/", kv, " x ", size);
    all.push_back({label, make<Attention>(0.3, mask), {q, k, k}});
    all.push_back(
        {label, make<AttentionBackward>(0.3, mask), {q, k, k, q, w({batch, heads, length}), q}});
  }
  return all;
}

std::string kernel_of(CudaBackend& backend, const Graph& g, std::string_view op) {
  auto program = backend.compile(g);
  for (size_t i = 0; i < program->graph().nodes().size(); ++i)
    if (program->graph().nodes()[i].op->name() == op)
      return cat(program->kernel(i), " | ", program->passed_over(i));
  return "decomposed";
}

// At most 1.5 times as far from f64 as the definition in the same dtype.
void expect_exact(const std::vector<GraphResult>& got, const Case& c, const ref::Feeds& feeds) {
  const ref::Results exact = ref::run(graph_for(c, DType::kF64), feeds);
  const Graph g = graph_for(c, DType::kBF16);
  const ref::Results decomposed = ref::run(g, feeds);
  for (size_t k = 0; k < got.size(); ++k) {
    const Doubles& truth = exact.outputs.at(cat("y", k))[0].data;
    EXPECT_LE(rms(got[k].values, truth),
              error_bound(g.type(g.outputs()[k].value).dtype,
                          decomposed.outputs.at(cat("y", k))[0].data, truth))
        << "output " << k;
  }
}

TEST(CudaCudnn, IsAsExactAsTheDefinition) {
  EmulatedBackend device(1, variant());
  for (const Case& c : cases()) {
    SCOPED_TRACE(cat(c.label, " ", c.op->key()));
    const ref::Feeds feeds = feeds_for(c, DType::kBF16);
    const Graph g = graph_for(c, DType::kBF16);
    const std::string kernel = kernel_of(device.backend(), g, c.op->name());
    EXPECT_EQ(kernel.find(cat(c.op->name(), " cuDNN 9.")), 0u) << kernel;
    expect_exact(device.run(g, feeds).outputs, c, feeds);
  }
}

// With little memory for the scores: in parts of sequences, then of heads, then not at all.
TEST(CudaCudnn, GradientsInPartsAreTheSame) {
  const Case c{.label = "",
               .op = make<AttentionBackward>(0.3, AttentionMask{true, 20}),
               .inputs = {t({4, 40, 4, 16}), t({4, 40, 2, 16}), t({4, 40, 2, 16}),
                          t({4, 40, 4, 16}), w({4, 4, 40}), t({4, 40, 4, 16})}};
  const Graph g = graph_for(c, DType::kBF16);
  const ref::Feeds feeds = feeds_for(c, DType::kBF16);
  EmulatedBackend device(2, variant());
  constexpr int64_t kHead = 64 * 128 * 2;  // bytes of scores
  std::string whole;
  for (const auto& [heads, parts] : {std::pair{16, 1}, {15, 2}, {7, 4}, {2, 8}, {1, 0}}) {
    SCOPED_TRACE(cat(parts, " parts"));
    CudnnAttention attention(device.backend().device(), heads * kHead);
    KernelTable table;
    register_composite_kernels(table, device.backend().device(), {}, kHeadRows,
                               [&](const PrepareContext& p) { return attention.prepare(p); });
    const Node& node = g.nodes().back();
    std::vector<TensorType> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(g.type(v));
    for (Value v : node.outputs) outputs.push_back(g.type(v));
    const Launch launch = std::get<Launch>(table.prepare({*node.op, inputs, outputs, g.mesh()}));
    if (in_order() && parts != 1) {
      EXPECT_NE(launch.kernel.find("in order"), std::string::npos) << launch.kernel;
    } else if (parts == 0) {
      EXPECT_EQ(launch.kernel, "attention_backward cuda mma");
      EXPECT_NE(launch.declined.find("of workspace for a fixed order"), std::string::npos)
          << launch.declined;
    } else {
      EXPECT_EQ(launch.kernel.find("parts") != std::string::npos, parts > 1) << launch.kernel;
      if (parts > 1) {
        EXPECT_NE(launch.kernel.find(cat("in ", parts, " parts")), std::string::npos);
      }
    }
    const GraphResults got = device.run_launch(g, feeds, table);
    expect_exact(got.outputs, c, feeds);
    std::string bits;
    for (const GraphResult& output : got.outputs) bits += output.bytes;
    if (whole.empty()) whole = bits;
    if (parts > 0) {
      EXPECT_TRUE(bits == whole) << parts;
    }
  }
}

TEST(CudaCudnn, WhatItDeclinesRunsOnOwnKernelsAndSaysWhy) {
  EmulatedBackend device(3, variant());
  const TensorType q = t({1, 16, 2, 16}), narrow = t({1, 16, 2, 12});
  const auto expect = [&](const Case& c, DType dtype, std::string_view reason) {
    const std::string text = kernel_of(device.backend(), graph_for(c, dtype), c.op->name());
    EXPECT_EQ(text.find("attention cuda"), 0u) << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  };
  expect({"", make<Attention>(0.3, AttentionMask{}), {q, q, q}}, DType::kF32,
         "takes bf16, not f32");
  expect({"", make<Attention>(0.3, AttentionMask{false}), {q, q, q}}, DType::kBF16,
         "causal attention only");
  expect({"", make<Attention>(0.3, AttentionMask{}), {narrow, narrow, narrow}}, DType::kBF16,
         "multiples of 8");
  for (const Case& c : longer_attention()) {
    if (c.op->name() != "attention") continue;
    const auto& op = static_cast<const Attention&>(*c.op);
    if (op.mask().documents) expect(c, DType::kBF16, "not with documents");
    if (op.dropout().p > 0 && !op.mask().documents) expect(c, DType::kBF16, "not with dropout");
  }
}

// Writes the kernel of attention to standard error, as a library of this version would have it.
[[noreturn]] void tell_kernel_with(const char* version) {
  setenv("TESSERA_EMULATED_CUDNN_VERSION", version, 1);
  EmulatedBackend device(1, variant());
  const TensorType q = t({1, 16, 2, 16});
  const Case c{"", make<Attention>(0.3, AttentionMask{}), {q, q, q}};
  std::fputs(kernel_of(device.backend(), graph_for(c, DType::kBF16), "attention").c_str(), stderr);
  std::exit(0);
}

// In a process of its own: a library is loaded once.
TEST(CudaCudnn, OlderVersionsAreLeftAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(tell_kernel_with("91801"), testing::ExitedWithCode(0),
              "attention cuda mma . CUDA: cuDNN 9.18.1 .* is too old: 9.19.0 or later is needed");
}

// Parts of flat buffers may begin anywhere: those run on own kernels, in the same workspace.
TEST(CudaCudnn, OperandsThatAreNotAlignedRunOnOwnKernels) {
  EmulatedBackend device(4, variant());
  CudaDevice& gpu = device.backend().device();
  const TensorType q{{1, 16, 2, 16}, DType::kBF16}, lse{{1, 2, 16}, DType::kF32};
  const Attention op(0.3, AttentionMask{});
  const std::vector<TensorType> inputs{q, q, q}, outputs{q, lse};
  Graph g;
  const Launch launch =
      std::get<Launch>(device.backend().kernels().prepare({op, inputs, outputs, g.mesh()}));
  EmulatedCuda& emulated = device.emulated();
  const std::vector<uint16_t> ones(1024, 0x3f80);
  std::vector<std::string> bits;
  for (size_t offset : {0, 1}) {
    const uint16_t* from = emulated.upload(ones, gpu.stream()) + offset;
    auto* o = emulated.allocate<uint16_t>(512);
    auto* rows = emulated.allocate<float>(32);
    std::vector<const void*> in{from, from, from};
    std::vector<void*> out{o, rows};
    launch.run({in, out, emulated.allocate<char>(static_cast<size_t>(launch.workspace_bytes))});
    const auto got = emulated.download(o, 512, gpu.stream());
    emulated.stream_synchronize(gpu.stream());
    bits.emplace_back(reinterpret_cast<const char*>(got.data()), 1024);
  }
  EXPECT_TRUE(bits[0] == bits[1]);
}

TEST(CudaCudnn, GoldensAreNearInBf16) {
  EmulatedGpu emulated;
  for (const char* name : {"llama2_tiny", "llama32_tiny"}) {
    SCOPED_TRACE(name);
    CudaBackend backend({});
    EXPECT_NE(backend.description().find("cuDNN 9."), std::string::npos);
    expect_near_in_bf16(name, backend);
  }
}

// Steps of a model in bf16, as graphs and launch by launch, in another order of events. Nothing is
// allocated behind the first.
TEST(CudaCudnn, RerunsAreTheSameToTheBit) {
  std::vector<double> first;
  for (const auto& [seed, graphs] : {std::pair{1, true}, {2, false}}) {
    EmulatedGpu emulated(seed);
    CudaBackend backend({.graphs = graphs});
    GoldenSession s("llama32_tiny", backend, DType::kBF16);
    auto tokens = s.golden.get<int32_t>("train_tokens"),
         labels = s.golden.get<int32_t>("train_labels");
    constexpr size_t kTokens = kGoldenBatch * kGoldenLength;
    decltype(&tessera_emulated_gpu_allocations) allocations = nullptr;
    emulated.load("tessera_emulated_gpu_allocations", allocations);
    int64_t allocated = 0;
    std::vector<double> numbers;
    for (size_t step = 0; step < 8; ++step) {
      if (step == 1) allocated = allocations();
      std::vector<MicroBatch> batches{
          {tokens.subspan(step * kTokens, kTokens), labels.subspan(step * kTokens, kTokens)}};
      const StepResult result = s.session.step(batches, 1e-3, 1.0);
      numbers.push_back(result.loss), numbers.push_back(result.gradient_norm);
    }
    EXPECT_EQ(allocations(), allocated);
    if (first.empty()) first = numbers;
    EXPECT_EQ(first, numbers);
  }
}

TEST(CudaCudnn, PlansAreToTheByteWhatADeviceAllocates) {
  EmulatedGpu emulated;
  DescribedBackend described({.attentions = Attentions::kCudnn}), own({});
  CudaBackend device({.cublaslt = false});
  EXPECT_EQ(described.attention(), cat("cuDNN ", Cudnn::get().version(), ", its workspaces exact"));
  auto session = [](Backend& backend) {
    return Session(build_programs(model_builder(tiny_model_of(ModelType::kLlamaV2)),
                                  tiny_programs(2, 640, DType::kBF16)),
                   backend);
  };
  const Session planned = session(described), without = session(own);
  Session real = session(device);
  real.allocate();
  EXPECT_EQ(planned.planned_memory().total(), real.allocated_bytes());
  EXPECT_EQ(planned.plan_hash(), real.plan_hash());
  EXPECT_NE(planned.planned_memory().arena, without.planned_memory().arena);
  int64_t by_cudnn = 0;
  for (size_t p = 0; p < planned.compiled().size(); ++p) {
    const Executable &there = *planned.compiled()[p].executable,
                     &here = *real.compiled()[p].executable;
    for (size_t i = 0; i < there.graph().nodes().size(); ++i) {
      EXPECT_EQ(there.kernel(i), here.kernel(i)) << i;
      by_cudnn += there.kernel(i).find("cuDNN") != std::string::npos;
    }
  }
  EXPECT_GT(by_cudnn, 0);
}

}  // namespace
}  // namespace tessera::cuda
