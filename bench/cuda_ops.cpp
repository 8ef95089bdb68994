// Every kernel of a training step on a GPU, each alone, against what the GPU's data sheet says: the
// larger of the times that its arithmetic and its bytes would take.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/cuda_timing.h"

namespace tessera::bench {
namespace {

using namespace cuda;

constexpr const char* kHelp = R"(Usage: cuda_ops [OPTIONS]

Times the kernels of a training step on GPU 0, by CUDA's events, with its second-level cache overwritten
before every launch. Printed: the median, TFLOP/s and GB/s by what the op needs at least, and the share of the data
sheet's peak of arithmetic or memory, whichever bounds the op.

  --size NAME        llama1b: width 2048, 32 heads, 8 kv heads, hidden 8192, vocabulary 128256, 4 x 2048 tokens;
                     llama3b: width 3072, 24 heads, 8 kv heads, hidden 8192, vocabulary 128256, 2 x 2048 tokens;
                     gpt2: width 768, 12 heads, biases, dropout of 0.1, vocabulary 50257, 16 x 1024 tokens;
                     tiny, tiny_gpt2
  --dtype bf16|f32   of compute (default bf16)
  --repeats N        launches that are timed (default 20)
  --peak_tflops X    of matrix products in bf16, dense, for a GPU whose data sheet is not known here
  --peak_gbytes X    10^9 bytes a second of its memory
)";

// Data sheets: dense bf16 in tensor cores, f32 outside of them, memory.
struct Peak {
  const char* name;
  double bf16, f32, bytes;
};
constexpr Peak kPeaks[] = {
    {"H200", 989.4e12, 66.9e12, 4.8e12},           {"H100 PCIe", 756e12, 51e12, 2.0e12},
    {"H100 NVL", 835e12, 60e12, 3.9e12},           {"H100", 989.4e12, 66.9e12, 3.35e12},
    {"A100-SXM4-80GB", 312e12, 19.5e12, 2.039e12}, {"A100-SXM4-40GB", 312e12, 19.5e12, 1.555e12},
    {"A100 80GB PCIe", 312e12, 19.5e12, 1.935e12},
};

struct Settings : JobSettings {
  int repeats = 20;
  std::optional<double> flops, bytes;
};

class Bench {
 public:
  Bench(CudaBackend& backend, const Settings& settings, int64_t vocabulary)
      : backend_(backend), device_(backend.device()), settings_(settings), vocabulary_(vocabulary) {
    const std::string& name = device_.facts().name;
    emulated_ = device_.driver().emulated();
    for (const Peak& peak : kPeaks) {
      if (!emulated_ && !peak_ && name.find(peak.name) != name.npos) peak_ = peak;
    }
    if (settings.flops || settings.bytes)
      peak_ = Peak{"given", settings.flops.value_or(0) * 1e12, 0, settings.bytes.value_or(0) * 1e9};
    scratch_bytes_ = emulated_ ? 1024 : int64_t{256} << 20;
  }

  void print_head() const {
    std::printf("%s\n", backend_.description().c_str());
    if (emulated_) {
      std::printf("EMULATED: times are those of a double of the driver and say nothing\n");
    } else if (!peak_) {
      std::printf("no data sheet of '%s' is known here: give --peak_tflops and --peak_gbytes\n",
                  device_.facts().name.c_str());
    } else {
      std::printf("data sheet (%s): %.1f TFLOP/s in bf16, %.0f GB/s\n", peak_->name,
                  peak_->bf16 / 1e12, peak_->bytes / 1e9);
    }
    std::printf("%-30s %-32s %10s %9s %9s %8s  %s\n", "op", "kernel", "us", "TFLOP/s", "GB/s",
                "% peak", "operands");
  }

  // Every kind of node once: its op and the types of its operands.
  void run(const Graph& wanted) {
    const auto program = backend_.compile_cuda(wanted);
    const Graph& graph = program->graph();
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      std::string types;
      for (Value v : node.inputs) types += cat(types.empty() ? "" : " ", to_string(graph.type(v)));
      const bool moves =
          node.op->tier() == Tier::kCollective || !node.op->placement_offsets().empty();
      if (moves || !node.op->view_offsets().empty() || node.op->tier() == Tier::kInput ||
          node.op->name() == "offload" || node.op->name() == "fetch" ||
          !seen_.emplace(cat(node.op->key(), types)).second)
        continue;
      time(graph, node, types);
    }
  }

 private:
  void time(const Graph& graph, const Node& node, const std::string& label) {
    std::vector<TensorType> in, out;
    for (Value v : node.inputs) in.push_back(graph.type(v));
    for (Value v : node.outputs) out.push_back(graph.type(v));
    const auto guard = device_.lock();
    Prepared prepared = backend_.kernels().prepare({*node.op, in, out, graph.mesh()});
    auto* launch = std::get_if<Launch>(&prepared);
    if (!launch) return;
    Buffers buffers(device_);
    const std::string_view op = node.op->name();
    const int64_t bound = op == "embedding"                      ? in[1].shape[0]
                          : op.starts_with("embedding_backward") ? out[0].shape[0]
                                                                 : vocabulary_;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const TensorType& type : in) inputs.push_back(buffers.filled(type, bound));
    for (size_t k = 0; k < out.size(); ++k) {
      // What is added to a sum is so in place, as in a step.
      const bool adds = is_added(node, static_cast<int>(k));
      outputs.push_back(adds ? const_cast<void*>(inputs.back()) : buffers.make(out[k].bytes()));
    }
    void* workspace = buffers.make(launch->workspace_bytes);
    void* scratch = buffers.make(scratch_bytes_);
    // The first launch loads what it needs.
    const double median =
        median_seconds(device_, scratch, scratch_bytes_, 1, settings_.repeats, [&] {
          launch->run({inputs, outputs, workspace});
        });
    const Cost cost = node.op->cost(in, out);
    std::string times = format("%10s %9s %9s %8s", "-", "-", "-", "-");
    if (!emulated_) {
      const bool half = !in.empty() && size_of(in[0].dtype) == 2;
      const bool known = peak_ && peak_->bf16 > 0 && peak_->bytes > 0;
      const double flops = !known ? 1 : half || peak_->f32 == 0 ? peak_->bf16 : peak_->f32;
      const std::string share =
          known ? format("%.1f%%",
                         100 * std::max(cost.flops / flops, cost.bytes / peak_->bytes) / median)
                : "-";
      times = format("%10.1f %9.1f %9.0f %8s", median * 1e6, cost.flops / median / 1e12,
                     cost.bytes / median / 1e9, share.c_str());
    }
    std::printf("%-30s %-32s %s  %s\n", std::string(node.op->name()).c_str(),
                launch->kernel.c_str(), times.c_str(), label.c_str());
  }

  CudaBackend& backend_;
  CudaDevice& device_;
  const Settings& settings_;
  int64_t vocabulary_, scratch_bytes_ = 0;
  bool emulated_ = false;
  std::optional<Peak> peak_;
  std::set<std::string> seen_;
};

void run(const Settings& settings) {
  const Job job = job_of(settings);
  CudaBackend backend({.graphs = false});
  const Programs programs = build_programs(model_builder(job.model), job.options);
  Bench bench(backend, settings, job.model.vocab_size);
  bench.print_head();
  bench.run(programs.accumulate_first);
  bench.run(programs.accumulate);
  bench.run(programs.apply);
}

}  // namespace
}  // namespace tessera::bench

int main(int count, char** words) {
  using namespace tessera::bench;
  Settings settings;
  const auto take = [&](const std::string& name, const std::string& value) {
    if (name == "--repeats")
      settings.repeats = std::max(1, std::stoi(value));
    else if (name == "--peak_tflops")
      settings.flops = std::stod(value);
    else if (name == "--peak_gbytes")
      settings.bytes = std::stod(value);
    else
      return settings.take(name, value);
    return true;
  };
  return benchmark_main("cuda_ops", kHelp, {words, static_cast<size_t>(count)}, take, [&] {
    run(settings);
    return 0;
  });
}
