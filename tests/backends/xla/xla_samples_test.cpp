// Every op sample on XLA's CPU, against the reference backend. Needs a plug-in,
// $TESSERA_XLA_PLUGIN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backends/ref/interpreter.h"
#include "backends/xla/client.h"
#include "backends/xla/plugin_search.h"
#include "backends/xla/stablehlo.h"
#include "base/float16.h"
#include "base/random.h"
#include "base/text.h"
#include "tests/ops/op_samples.h"

namespace tessera::xla {
namespace {

constexpr int kDevices = 8;

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

std::vector<std::byte> to_bytes(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes;
  for (double v : values) {
    switch (dtype) {
      case DType::kF64: append(bytes, v); break;
      case DType::kF32: append(bytes, static_cast<float>(v)); break;
      case DType::kBF16: append(bytes, BF16(static_cast<float>(v))); break;
      case DType::kF16: append(bytes, F16(static_cast<float>(v))); break;
      case DType::kI64: append(bytes, static_cast<int64_t>(v)); break;
      case DType::kI32: append(bytes, static_cast<int32_t>(v)); break;
      case DType::kBool: append(bytes, static_cast<uint8_t>(v != 0)); break;
    }
  }
  return bytes;
}

template <class T>
T element(const std::vector<std::byte>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double number(DType dtype, const std::vector<std::byte>& bytes, size_t i) {
  switch (dtype) {
    case DType::kF64: return element<double>(bytes, i);
    case DType::kF32: return element<float>(bytes, i);
    case DType::kBF16: return static_cast<float>(element<BF16>(bytes, i));
    case DType::kF16: return static_cast<float>(element<F16>(bytes, i));
    case DType::kI64: return static_cast<double>(element<int64_t>(bytes, i));
    case DType::kI32: return element<int32_t>(bytes, i);
    case DType::kBool: return element<uint8_t>(bytes, i);
  }
  return 0;
}

// The graph of a sample with its floats in another dtype; false where the op does not take that.
bool make_graph(const OpSample& sample, DType floats, Graph& g) {
  bool any = false;
  try {
    std::vector<Value> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      TensorType type = sample.inputs[i];
      any |= type.dtype == DType::kF64;
      if (type.dtype == DType::kF64) type.dtype = floats;
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
    }
    const std::vector<Value> outputs = g.add(sample.op, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) g.output(cat("y", i), outputs[i]);
    stablehlo(g);
  } catch (const UserError&) {
    return false;
  }
  return any || floats == DType::kF32;
}

ref::Feeds feeds_of(const OpSample& sample, const Graph& g) {
  ref::Feeds feeds;
  uint64_t drawn = 0;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const TensorType& type = g.type(g.inputs()[i].value);
    for (int rank = 0; rank < g.mesh().world_size(); ++rank) {
      auto& ranks = feeds[cat("x", i)];
      if (rank > 0 && type.varying.empty()) {
        ranks.push_back(ranks[0]);
        continue;
      }
      std::vector<double> values(static_cast<size_t>(type.elements()));
      for (double& v : values) {
        const double r = random_uniform(7, 0, drawn++);
        v = is_float(type.dtype) ? sample.low + r * (sample.high - sample.low)
                                 : std::floor(r * static_cast<double>(sample.integer_bound));
      }
      if (auto given = sample.given.find(i); given != sample.given.end()) values = given->second;
      const std::vector<std::byte> bytes = to_bytes(type.dtype, values);
      for (size_t k = 0; k < values.size(); ++k) values[k] = number(type.dtype, bytes, k);
      ranks.push_back(values);
    }
  }
  return feeds;
}

using Results = std::vector<CompiledProgram::Buffers>;  // by rank

Results run_on(const Client& client, const Graph& g, const ref::Feeds& feeds) {
  const auto world = static_cast<size_t>(g.mesh().world_size());
  std::vector<std::vector<DeviceBuffer>> arguments(world);
  std::vector<std::vector<const DeviceBuffer*>> given(world);
  for (size_t rank = 0; rank < world; ++rank) {
    for (const GraphInput& input : g.inputs()) {
      const TensorType& type = g.type(input.value);
      const auto bytes = to_bytes(type.dtype, feeds.at(input.name)[rank]);
      arguments[rank].push_back(client.copy(type, bytes.data(), static_cast<int>(rank)));
    }
    for (const DeviceBuffer& buffer : arguments[rank]) given[rank].push_back(&buffer);
  }
  return client.compile(stablehlo(g).text, g.mesh().world_size())->run(given);
}

// The largest difference, as a share of the largest element.
double difference(const Results& results, size_t output, const std::vector<ref::Tensor>& expected) {
  double error = 0, scale = 1e-30;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto& [type, data] = expected[rank];
    std::vector<std::byte> bytes(static_cast<size_t>(type.elements() * size_of(type.dtype)));
    results[rank][output].read(bytes);
    for (size_t k = 0; k < data.size(); ++k) {
      const double got = number(type.dtype, bytes, k);
      if (std::isinf(data[k]) && data[k] == got) continue;
      error = std::max(error, std::abs(data[k] - got));
      scale = std::max(scale, std::abs(data[k]));
    }
  }
  return error / scale;
}

// Of floats that were rounded once; sums in bf16 are rounded in between too.
double bound(DType floats, DType output) {
  if (!is_float(output)) return 0;
  if (floats == DType::kBF16) return output == DType::kBF16 ? 0x1p-7 : 1e-2;
  return output == DType::kF64 && floats == DType::kF64 ? 1e-12 : 2e-6;
}

TEST(XlaSamples, AgreeWithTheReference) {
  const auto path = plugin_if_any("", PluginKind::kCpu);
  if (!path) GTEST_SKIP() << "no plug-in of XLA: set TESSERA_XLA_PLUGIN to its library";
  const Plugin plugin(path->string());
  const Client client(plugin, kDevices);
  EXPECT_EQ(client.platform(), "cpu");
  int run = 0;
  for (const OpSample& sample : op_samples())
    for (DType floats : {DType::kF32, DType::kBF16, DType::kF64}) {
      Graph g(sample.mesh);
      if (!make_graph(sample, floats, g)) continue;
      SCOPED_TRACE(cat(sample.op->name(), " ", sample.label, " ", name(floats)));
      const ref::Feeds feeds = feeds_of(sample, g);
      const Results results = run_on(client, g, feeds);
      const auto expected = ref::run(g, feeds).outputs;
      for (size_t k = 0; k < g.outputs().size(); ++k) {
        const GraphOutput& output = g.outputs()[k];
        EXPECT_LE(difference(results, k, expected.at(output.name)),
                  bound(floats, g.type(output.value).dtype))
            << output.name;
      }
      ++run;
    }
  EXPECT_GT(run, 250);
}

}  // namespace
}  // namespace tessera::xla
