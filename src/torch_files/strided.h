#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/shape.h"

namespace tessera {

// Tensors whose neighbours lie `strides` elements apart, for each dim; as PyTorch stores them.

// Strides of a tensor without gaps, the last dim innermost.
Shape contiguous_strides(const Shape& shape);

// Whether the elements follow each other in row-major order. Dims of size 1 may have any stride.
bool is_contiguous(const Shape& shape, const Shape& strides);

// How many elements the storage must have from the first element of the tensor on; nullopt where 64
// bits do not hold that, the number of elements or either in bytes, or where a size or a stride is
// negative.
std::optional<int64_t> storage_extent(const Shape& shape, const Shape& strides,
                                      int64_t element_bytes);

// Elements first, first + 1, ... of a tensor in row-major order, as many as `out` holds. `data` is
// its first element, which need not be aligned.
void copy_strided(const std::byte* data, const Shape& shape, const Shape& strides,
                  int64_t element_bytes, int64_t first, std::span<std::byte> out);

}  // namespace tessera
