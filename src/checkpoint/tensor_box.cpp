#include "checkpoint/tensor_box.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

// Elements of a whole tensor that one step along each dim skips.
Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace

std::string to_string(const TensorBox& box) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < box.shape.size(); ++d)
    ranges.push_back(cat(box.begin[d], ":", box.begin[d] + box.shape[d]));
  return cat("[", join(ranges, ", "), "]");
}

bool is_inside(const TensorBox& box, const Shape& shape) {
  if (box.begin.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.begin[d] < 0 || box.shape[d] < 0 || box.begin[d] > shape[d] ||
        box.shape[d] > shape[d] - box.begin[d])
      return false;
  }
  return true;
}

std::vector<TensorBox> boxes_of_range(const Shape& shape, int64_t first, int64_t count) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= num_elements(shape),
                "a range outside of its tensor");
  if (shape.empty()) return count > 0 ? std::vector{TensorBox{}} : std::vector<TensorBox>{};
  const Shape strides = strides_of(shape);
  std::vector<TensorBox> boxes;
  for (int64_t end = first + count; first < end;) {
    // The outermost dim along which a whole step begins here and ends in the range.
    size_t dim = 0;
    while (first % strides[dim] != 0 || end - first < strides[dim]) ++dim;
    // Up to the end of the range, and of the row of the next outer dim.
    int64_t index = first / strides[dim], steps = (end - first) / strides[dim];
    if (dim > 0) steps = std::min(steps, shape[dim] - index % shape[dim]);
    TensorBox box = whole_box(shape);
    for (size_t d = 0; d <= dim; ++d) {
      box.begin[d] = first / strides[d] % (d > 0 ? shape[d] : shape[0]);
      box.shape[d] = d < dim ? 1 : steps;
    }
    first += box.elements();
    boxes.push_back(std::move(box));
  }
  return boxes;
}

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const TensorBox> boxes) {
  auto overlap = [](const TensorBox& a, const TensorBox& b) {
    for (size_t d = 0; d < a.shape.size(); ++d) {
      int64_t end = std::min(a.begin[d] + a.shape[d], b.begin[d] + b.shape[d]);
      if (end <= std::max(a.begin[d], b.begin[d])) return false;
    }
    return true;
  };
  // In the order of the first dim only boxes that reach so far can overlap the next one.
  auto begin_of = [&](size_t i) { return boxes[i].begin.empty() ? 0 : boxes[i].begin[0]; };
  std::vector<size_t> order(boxes.size()), reaching;
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, begin_of);
  for (size_t i : order) {
    std::erase_if(reaching, [&](size_t k) {
      return !boxes[k].begin.empty() && boxes[k].begin[0] + boxes[k].shape[0] <= begin_of(i);
    });
    for (size_t k : reaching)
      if (overlap(boxes[k], boxes[i])) return std::pair(k, i);
    reaching.push_back(i);
  }
  return {};
}

// The mixed difference, along all dims, of the function that is 1 in a box and 0 elsewhere is 1 or
// -1 at its corners, by the parity of the ends that they have, and it determines the function. So
// the boxes add up to the whole exactly if these differences do.
bool boxes_tile(const Shape& shape, size_t count,
                const std::function<const TensorBox&(size_t)>& box) {
  if (num_elements(shape) == 0) return count == 0;
  constexpr size_t kMaxCut = 3;
  std::vector<size_t> cut;  // dims that not all boxes have whole
  for (size_t d = 0; d < shape.size(); ++d) {
    for (size_t i = 0; i < count; ++i) {
      if (box(i).shape[d] == shape[d]) continue;
      cut.push_back(d);
      break;
    }
  }
  if (cut.size() > kMaxCut)
    throw UserError(cat("its parts are cut along ", cut.size(), " dims, more than ", kMaxCut));
  using Point = std::array<int64_t, kMaxCut>;
  std::array<std::vector<Point>, 2> corners;  // by their signs
  auto add = [&](const TensorBox& b, size_t sign) {
    for (size_t ends = 0; ends < size_t{1} << cut.size(); ++ends) {
      Point point{};
      for (size_t k = 0; k < cut.size(); ++k)
        point[k] = b.begin[cut[k]] + (ends >> k & 1 ? b.shape[cut[k]] : 0);
      corners[(sign + static_cast<size_t>(std::popcount(ends))) % 2].push_back(point);
    }
  };
  const size_t half = (count + 1) * std::max<size_t>(1, (size_t{1} << cut.size()) / 2);
  for (std::vector<Point>& points : corners) points.reserve(half);
  for (size_t i = 0; i < count; ++i) add(box(i), 0);
  add(whole_box(shape), 1);
  for (std::vector<Point>& points : corners) std::ranges::sort(points);
  return corners[0] == corners[1];
}

int64_t common_elements(const TensorBox& a, const TensorBox& b) {
  TESSERA_CHECK(b.shape.size() == a.shape.size(), "boxes of tensors of different rank");
  int64_t elements = 1;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]);
    elements *=
        std::max<int64_t>(0, std::min(a.begin[d] + a.shape[d], b.begin[d] + b.shape[d]) - begin);
  }
  return elements;
}

int64_t for_each_common_run(const TensorBox& a, const TensorBox& b,
                            const std::function<void(int64_t, int64_t, int64_t)>& visit) {
  const size_t rank = a.shape.size();
  TESSERA_CHECK(b.shape.size() == rank, "boxes of tensors of different rank");
  TensorBox common = a;
  for (size_t d = 0; d < rank; ++d) {
    common.begin[d] = std::max(a.begin[d], b.begin[d]);
    int64_t end = std::min(a.begin[d] + a.shape[d], b.begin[d] + b.shape[d]);
    if (end <= common.begin[d]) return 0;
    common.shape[d] = end - common.begin[d];
  }
  // A run goes over the dims behind `outer`, which both have whole, and along the last before them.
  size_t outer = rank;
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= common.shape[outer];
    if (common.shape[outer] != a.shape[outer] || common.shape[outer] != b.shape[outer]) break;
  }
  const Shape strides_a = strides_of(a.shape), strides_b = strides_of(b.shape);
  int64_t at_a = 0, at_b = 0;
  for (size_t d = 0; d < rank; ++d) {
    at_a += (common.begin[d] - a.begin[d]) * strides_a[d];
    at_b += (common.begin[d] - b.begin[d]) * strides_b[d];
  }
  Shape index(outer, 0);
  while (true) {
    visit(at_a, at_b, run);
    size_t d = outer;
    while (d > 0) {
      --d;
      at_a += strides_a[d];
      at_b += strides_b[d];
      if (++index[d] < common.shape[d]) break;
      at_a -= index[d] * strides_a[d];
      at_b -= index[d] * strides_b[d];
      index[d] = 0;
      if (d == 0) return common.elements();
    }
    if (outer == 0) return common.elements();
  }
}

}  // namespace tessera
