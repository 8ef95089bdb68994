#include "programs/shard_pieces.h"

#include <algorithm>

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

std::vector<int64_t> segment_begin(const FlatUnit& unit, int shard_index) {
  std::vector<int64_t> begin;
  for (const UnitMember& member : unit.members) {
    begin.push_back(
        std::clamp<int64_t>(member.offset - shard_index * unit.shard_size, 0, unit.shard_size));
  }
  return begin;
}

}  // namespace tessera
