#include "apps/bench_ops.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "apps/cpu_device.h"
#include "backends/cpu/kernels/elementwise.h"
#include "base/clock.h"
#include "base/random.h"
#include "ops/composite/embedding.h"
#include "passes/document_mask.h"

namespace tessera {
namespace {

// Buffers filled with numbers that every op accepts: small floats, ids below `bound`, true flags,
// rising offsets from 0, counters of 1.
HostBuffer filled(const TensorType& type, int64_t bound, uint64_t stream) {
  HostBuffer buffer(std::max<int64_t>(type.bytes(), 64));
  int64_t n = type.elements();
  for (int64_t i = 0; i < n; ++i) {
    auto index = static_cast<uint64_t>(i);
    auto x = static_cast<float>(random_uniform(3, stream, index) - 0.5);
    switch (type.dtype) {
      case DType::kF32: reinterpret_cast<float*>(buffer.data())[i] = x; break;
      case DType::kBF16: reinterpret_cast<BF16*>(buffer.data())[i] = BF16(x); break;
      case DType::kI32:
        reinterpret_cast<int32_t*>(buffer.data())[i] =
            static_cast<int32_t>(random_below(3, stream, index, static_cast<uint64_t>(bound)));
        break;
      case DType::kI64:
        reinterpret_cast<int64_t*>(buffer.data())[i] = type.shape.empty() ? 1 : i;
        break;
      case DType::kBool: reinterpret_cast<uint8_t*>(buffer.data())[i] = 1; break;
      default: break;
    }
  }
  return buffer;
}

bool is_document_starts(const Graph& graph, Value v) {
  const GraphInput* input = graph.input_of(v);
  return input && input->name == kDocumentStarts;
}
HostBuffer documents(const TensorType& type) {
  HostBuffer buffer(std::max<int64_t>(type.bytes(), 64));
  std::ranges::copy(bench_document_starts(type.shape[0], type.shape[1]),
                    reinterpret_cast<int32_t*>(buffer.data()));
  return buffer;
}

struct Timing {
  double median = 0;
  double flops = 0, bytes = 0;
};

// Ids are rows of a table: of the one that is read or whose gradient is made, else the vocabulary.
int64_t id_bound(const Graph& graph, const Node& node, int64_t vocabulary) {
  if (dynamic_cast<const Embedding*>(node.op.get())) return graph.shape(node.inputs[1])[0];
  if (dynamic_cast<const EmbeddingBackward*>(node.op.get())) return graph.shape(node.outputs[0])[0];
  return vocabulary;
}

Timing time_node(const Graph& graph, const Node& node, const Launch& launch, int64_t vocabulary,
                 int64_t repeats) {
  int64_t bound = id_bound(graph, node, vocabulary);
  std::vector<HostBuffer> buffers;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<TensorType> in, out;
  for (Value v : node.inputs) {
    in.push_back(graph.type(v));
    buffers.push_back(is_document_starts(graph, v) ? documents(in.back())
                                                   : filled(in.back(), bound, buffers.size()));
    inputs.push_back(buffers.back().data());
  }
  for (Value v : node.outputs) {
    // What is added to a sum is so in place, as in a step.
    const bool adds = is_added(node, static_cast<int>(out.size()));
    out.push_back(graph.type(v));
    if (!adds) buffers.emplace_back(std::max<int64_t>(out.back().bytes(), 64));
    outputs.push_back(buffers[adds ? node.inputs.size() - 1 : buffers.size() - 1].data());
  }
  HostBuffer workspace(launch.workspace_bytes);
  std::vector<double> seconds;
  for (int64_t i = 0; i <= repeats; ++i) {
    double start = monotonic_seconds();
    launch.run({inputs, outputs, workspace.data()});
    if (i > 0) seconds.push_back(monotonic_seconds() - start);
  }
  std::nth_element(seconds.begin(),
                   seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  Cost cost = node.op->cost(in, out);
  return {seconds[seconds.size() / 2], cost.flops, cost.bytes};
}

}  // namespace

std::vector<int32_t> bench_document_starts(int64_t rows, int64_t length) {
  constexpr int64_t kDocument = 256;
  std::vector<int32_t> starts;
  for (int64_t i = 0; i < rows * length; ++i)
    starts.push_back(static_cast<int32_t>(i % length / kDocument * kDocument));
  return starts;
}

SpeedOfLight measure_speed_of_light(cpu::CpuBackend& backend) {
  SpeedOfLight light;
  light.matrix_bf16 = measure_matrix_peak(backend, DType::kBF16);
  light.matrix_f32 = measure_matrix_peak(backend, DType::kF32);
  HostBuffer from(SpeedOfLight::kCopiedBytes), to(SpeedOfLight::kCopiedBytes);
  for (int i = 0; i < 5; ++i) {
    double start = monotonic_seconds();
    cpu::copy(from.data(), to.data(), SpeedOfLight::kCopiedBytes, backend.pool());
    light.bandwidth =
        std::max(light.bandwidth, 2.0 * SpeedOfLight::kCopiedBytes / (monotonic_seconds() - start));
  }
  return light;
}

int bench_ops(const RunConfig& config, const ModelConfig& model) {
  auto backend = open_cpu(config);
  ModelConfig one_layer = model;
  one_layer.num_layers = 1;  // the others are alike
  ProgramOptions options = program_options(config, {});
  options.freeze.clear();  // what it names may be in another layer; every op is wanted here
  options.accumulates = true;
  Programs programs = build_programs(model_builder(one_layer), options);
  SpeedOfLight light = measure_speed_of_light(*backend);
  struct Row {
    std::string op, operand, kernel;
    bool contracts;
    Timing timing;
  };
  std::vector<Row> rows;
  std::set<std::string> seen;
  DType compute = compute_dtype(config);
  for (const Graph* graph :
       {&programs.accumulate_first, &programs.accumulate, &programs.apply, &programs.evaluate}) {
    auto executable = backend->compile_host(*graph);
    for (size_t i = 0; i < executable->graph().nodes().size(); ++i) {
      const Node& node = executable->graph().nodes()[i];
      if (!executable->launch(i).run || node.inputs.empty()) continue;
      std::string op(node.op->name()), types;
      for (Value v : node.inputs) types += to_string(executable->graph().type(v));
      bool wanted =
          config.op.empty() || std::find(config.op.begin(), config.op.end(), op) != config.op.end();
      if (!wanted || !seen.insert(op + types).second) continue;
      Timing t = time_node(executable->graph(), node, executable->launch(i), model.vocab_size,
                           config.repeats);
      // What attention costs is counted as if rows were one document.
      bool masked = std::ranges::any_of(
          node.inputs, [&](Value v) { return is_document_starts(executable->graph(), v); });
      if (!masked) light.reached(node.op->contracts(), t.flops, t.bytes, t.median, compute);
      rows.push_back({op, to_string(executable->graph().type(node.inputs[0])),
                      executable->launch(i).kernel, node.op->contracts(), t});
    }
  }
  std::printf(
      "CPU, %d threads, %s: matrix products %.1f GFLOP/s bf16, %.1f f32; memory %.1f GB/s\n",
      backend->pool().threads(), std::string(name(backend->isa())).c_str(), light.matrix_bf16 / 1e9,
      light.matrix_f32 / 1e9, light.bandwidth / 1e9);
  std::printf("%-30s %-44s %10s %10s %9s %8s  %s\n", "op", "first operand", "us", "GFLOP/s", "GB/s",
              "% light", "kernel");
  for (const auto& [op, operand, kernel, contracts, t] : rows) {
    std::printf("%-30s %-44s %10.1f %10.1f %9.2f %7.1f%%  %s\n", op.c_str(), operand.c_str(),
                t.median * 1e6, t.flops / t.median / 1e9, t.bytes / t.median / 1e9,
                100 * light.seconds(contracts, t.flops, t.bytes, compute) / t.median,
                kernel.c_str());
  }
  return 0;
}

}  // namespace tessera
