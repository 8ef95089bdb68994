#include "programs/shard_pieces.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {

std::vector<PieceRange> piece_ranges(const Programs& programs, const FlatUnit& unit, size_t k,
                                     int rank) {
  const Parallelism& parallelism = programs.parallelism;
  auto index = static_cast<size_t>(unit.parameters[k]);
  const Shape& whole = programs.parameters[index].shape;
  const ParameterPart& part = programs.parts[index];
  // The part as [outer, rows, inner] of which `rows` are the parameter's own.
  int64_t outer = 1, rows = 1, inner = num_elements(whole), first_row = 0, whole_rows = 1;
  if (part.dim >= 0) {
    auto dim = static_cast<size_t>(part.dim);
    inner = 1;
    for (size_t d = 0; d < dim; ++d) outer *= whole[d];
    for (size_t d = dim + 1; d < whole.size(); ++d) inner *= whole[d];
    whole_rows = whole[dim];
    rows = part.shape[dim];
    first_row = parallelism.mesh.index(rank, part.axes) * rows;
  }
  int64_t own_rows = std::clamp<int64_t>(whole_rows - first_row, 0, rows);
  int64_t begin = parallelism.mesh.index(rank, parallelism.data.shard) * unit.shard_size -
                  unit.members[k].offset;
  int64_t end = begin + unit.shard_size;  // [begin, end) of the part lies in this piece
  std::vector<PieceRange> ranges;
  for (int64_t o = 0; o < outer; ++o) {
    int64_t from = std::max(begin, o * rows * inner);
    int64_t to = std::min(end, (o * rows + own_rows) * inner);
    if (from >= to) continue;
    int64_t in_block = from - o * rows * inner;
    ranges.push_back({(o * whole_rows + first_row) * inner + in_block, from - begin, to - from});
  }
  return ranges;
}

std::vector<PieceBox> piece_boxes(const Programs& programs, const FlatUnit& unit, size_t k,
                                  int rank) {
  const Parallelism& parallelism = programs.parallelism;
  auto index = static_cast<size_t>(unit.parameters[k]);
  const Shape& whole = programs.parameters[index].shape;
  const ParameterPart& part = programs.parts[index];
  int64_t shard_begin = parallelism.mesh.index(rank, parallelism.data.shard) * unit.shard_size;
  int64_t begin = std::max<int64_t>(shard_begin - unit.members[k].offset, 0);
  int64_t end =
      std::min(shard_begin + unit.shard_size - unit.members[k].offset, num_elements(part.shape));
  std::vector<PieceBox> boxes;
  if (begin >= end) return boxes;
  int64_t local = unit.members[k].offset + begin - shard_begin;
  for (TensorBox& box : boxes_of_range(part.shape, begin, end - begin)) {
    const int64_t elements = box.elements();
    if (part.dim >= 0) {
      auto dim = static_cast<size_t>(part.dim);
      box.begin[dim] += parallelism.mesh.index(rank, part.axes) * part.shape[dim];
      // Rows behind the parameter's own are padding.
      int64_t own = std::clamp<int64_t>(whole[dim] - box.begin[dim], 0, box.shape[dim]);
      TESSERA_CHECK(own == box.shape[dim] || dim == 0, "a parameter is padded along an inner dim");
      box.shape[dim] = own;
    }
    if (box.elements() > 0) boxes.push_back({std::move(box), local});
    local += elements;
  }
  return boxes;
}

bool is_copy(const Programs& programs, const FlatUnit& unit, size_t k, int rank) {
  const Parallelism& parallelism = programs.parallelism;
  const AxisSet cut =
      parallelism.data.shard | programs.parts[static_cast<size_t>(unit.parameters[k])].axes;
  return parallelism.mesh.index(rank, parallelism.mesh.all_axes() - cut) != 0;
}

std::vector<int64_t> segment_begin(const FlatUnit& unit, int shard_index) {
  std::vector<int64_t> begin;
  for (const UnitMember& member : unit.members) {
    begin.push_back(
        std::clamp<int64_t>(member.offset - shard_index * unit.shard_size, 0, unit.shard_size));
  }
  return begin;
}

}  // namespace tessera
