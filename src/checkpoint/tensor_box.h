#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shape.h"

namespace tessera {

// A part of a tensor: in every dim `shape` elements from `begin` on. Of a scalar both are empty.
struct TensorBox {
  Shape begin, shape;
  int64_t elements() const { return num_elements(shape); }
  bool operator==(const TensorBox&) const = default;
};

// "[2:4, 0:64]"
std::string to_string(const TensorBox& box);

inline TensorBox whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

// Whether the box lies in a tensor of this shape.
bool is_inside(const TensorBox& box, const Shape& shape);

// Consecutive elements [first, first + count) of a tensor, row-major, as boxes in their order: the
// elements of each follow each other in the tensor. Of a matrix these are at most three: the end of
// a row, rows, the beginning of a row.
std::vector<TensorBox> boxes_of_range(const Shape& shape, int64_t first, int64_t count);

// Two boxes of a tensor, by their numbers, that have an element in common, if any have.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const TensorBox> boxes);

// Whether `count` boxes inside of a tensor of this shape, none of them empty, make it up: whether
// every element lies in exactly one. In the time of sorting their corners. UserError for boxes that
// are cut along more than 3 dims.
bool boxes_tile(const Shape& shape, size_t count,
                const std::function<const TensorBox&(size_t)>& box);

// How many elements both boxes have.
int64_t common_elements(const TensorBox& a, const TensorBox& b);

// Calls visit(element of a, element of b, count) for all elements that both boxes have, in runs
// that are consecutive in both, row-major. Returns how many elements these are.
int64_t for_each_common_run(const TensorBox& a, const TensorBox& b,
                            const std::function<void(int64_t, int64_t, int64_t)>& visit);

}  // namespace tessera
