#pragma once
// What the tests of the primitive kernels share: one op on given operands, run by its launch and by
// the reference backend, and its elements as doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/cpu_kernels.h"
#include "backends/ref/interpreter.h"
#include "backends/ref/kernels.h"
#include "base/random.h"
#include "tests/backends/cpu/allocation_count.h"

namespace tessera::cpu {

using Bytes = std::vector<std::byte>;
using Doubles = std::vector<double>;

template <class T>
void append(Bytes& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

inline Bytes to_bytes(DType dtype, const Doubles& values) {
  Bytes bytes;
  for (double v : values) {
    switch (dtype) {
      case DType::kF64: append(bytes, v); break;
      case DType::kF32: append(bytes, static_cast<float>(v)); break;
      case DType::kBF16: append(bytes, BF16(static_cast<float>(v))); break;
      case DType::kI64: append(bytes, static_cast<int64_t>(v)); break;
      case DType::kI32: append(bytes, static_cast<int32_t>(v)); break;
      default: append(bytes, static_cast<uint8_t>(v)); break;
    }
  }
  return bytes;
}

template <class T>
Doubles read_as(const Bytes& bytes) {
  Doubles values;
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, &bytes[i], sizeof value);
    if constexpr (std::is_same_v<T, BF16>) {
      values.push_back(static_cast<float>(value));
    } else {
      values.push_back(static_cast<double>(value));
    }
  }
  return values;
}

inline Doubles to_doubles(DType dtype, const Bytes& bytes) {
  switch (dtype) {
    case DType::kF64: return read_as<double>(bytes);
    case DType::kF32: return read_as<float>(bytes);
    case DType::kBF16: return read_as<BF16>(bytes);
    case DType::kI64: return read_as<int64_t>(bytes);
    case DType::kI32: return read_as<int32_t>(bytes);
    default: return read_as<uint8_t>(bytes);
  }
}

// One op on given operands.
struct Case {
  OpPtr op;
  std::vector<TensorType> types;
  std::vector<Doubles> values;

  TensorType result() const { return op->infer({types, Mesh{}})[0]; }
};

inline Prepared prepare(const Case& c, ThreadPool& pool, Isa isa = detect_isa()) {
  KernelTable table;
  register_primitive_kernels(table, isa, pool);
  TensorType result = c.result();
  return table.prepare({*c.op, c.types, {&result, 1}, Mesh()});
}

// Runs the op's launch; `shared` >= 0: the result takes the storage of that operand.
inline Bytes run_launch(const Case& c, ThreadPool& pool, Isa isa = detect_isa(), int shared = -1) {
  Prepared prepared = prepare(c, pool, isa);
  if (auto* reason = std::get_if<std::string>(&prepared)) throw InternalError(*reason);
  const Launch& launch = std::get<Launch>(prepared);
  EXPECT_EQ(launch.workspace_bytes, 0);
  std::vector<Bytes> operands;
  for (size_t i = 0; i < c.types.size(); ++i)
    operands.push_back(to_bytes(c.types[i].dtype, c.values[i]));
  Bytes own(static_cast<size_t>(c.result().bytes()), std::byte{0xA5});
  Bytes& result = shared < 0 ? own : operands[static_cast<size_t>(shared)];
  std::vector<const void*> inputs;
  for (const Bytes& operand : operands) inputs.push_back(operand.data());
  void* output = result.data();
  int64_t allocations_before = allocation_count();
  launch.run({inputs, {&output, 1}, nullptr});
  EXPECT_EQ(allocation_count(), allocations_before);
  return result;
}

inline Doubles run_one(const Case& c, Isa isa = detect_isa()) {
  ThreadPool pool(2);
  return to_doubles(c.result().dtype, run_launch(c, pool, isa));
}

inline Doubles run_reference(const Case& c) {
  Graph graph;
  std::vector<Value> inputs;
  ref::Feeds feeds;
  for (size_t i = 0; i < c.types.size(); ++i) {
    inputs.push_back(graph.input(cat("x", i), InputKind::kArgument, c.types[i]));
    feeds[cat("x", i)] = {c.values[i]};
  }
  graph.output("y", graph.add(c.op, inputs)[0]);
  return ref::run(graph, feeds).outputs.at("y")[0].data;
}

inline Doubles random_values(const TensorType& type, double low, double high, int64_t bound,
                             uint64_t seed) {
  Doubles values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    double u = random_uniform(seed, stream_of("primitive"), static_cast<uint64_t>(i));
    values.push_back(is_float(type.dtype) ? ref::round_to(type.dtype, low + (high - low) * u)
                                          : std::floor(u * static_cast<double>(bound)));
  }
  return values;
}

template <class T, class... Args>
OpPtr make(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

}  // namespace tessera::cpu
