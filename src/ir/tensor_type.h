#pragma once
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "ir/mesh.h"

namespace tessera {

// What is known of a value before anything runs: shape and dtype of the local tensor of one rank,
// and for every mesh axis whether the value is replicated (the same on all ranks of the axis) or
// varying.
struct TensorType {
  Shape shape;
  DType dtype = DType::kF32;
  AxisSet varying = {};

  int64_t elements() const { return num_elements(shape); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// "bf16[8, 256]", with a mesh also "f32[128]{shard}" for a varying one.
std::string to_string(const TensorType& type, const Mesh* mesh = nullptr);

}  // namespace tessera
