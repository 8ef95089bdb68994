#pragma once
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "ir/mesh.h"

namespace tessera {

// 64 TiB. No tensor of a rank is larger: so sizes, offsets and scratch that follow from the shapes
// of a graph are far from overflowing 64 bits.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 46;

// What is known of a value before anything runs: shape and dtype of the local tensor of one rank,
// and for every mesh axis whether the value is replicated (the same on all ranks of the axis) or
// varying.
struct TensorType {
  Shape shape;
  DType dtype = DType::kF32;
  AxisSet varying = {};

  int64_t elements() const { return num_elements(shape); }
  // At most kMaxTensorBytes for every value of a graph, which Graph::add() sees to.
  int64_t bytes() const { return elements() * size_of(dtype); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// "bf16[8, 256]", with a mesh also "f32[128]{shard}" for a varying one.
std::string to_string(const TensorType& type, const Mesh* mesh = nullptr);

}  // namespace tessera
