#include "programs/shard_pieces.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tessera {

namespace {

// Member k of a unit as one rank has it: a part of the parameter, of which elements [begin, end),
// where they are elements of the part, lie in the rank's piece.
struct MemberPiece {
  const Shape& whole;
  const ParameterPart& part;
  int64_t first_row = 0;  // of the part, along its dim
  int64_t begin = 0, end = 0;
};

MemberPiece member_piece(const Programs& programs, const FlatUnit& unit, size_t k, int rank) {
  const Parallelism& parallelism = programs.parallelism;
  auto index = static_cast<size_t>(unit.parameters[k]);
  MemberPiece piece{programs.parameters[index].shape, programs.parts[index]};
  if (piece.part.dim >= 0) {
    piece.first_row = parallelism.mesh.index(rank, piece.part.axes) *
                      piece.part.shape[static_cast<size_t>(piece.part.dim)];
  }
  piece.begin = parallelism.mesh.index(rank, parallelism.data.shard) * unit.shard_size -
                unit.members[k].offset;
  piece.end = piece.begin + unit.shard_size;
  return piece;
}

}  // namespace

std::vector<PieceRange> piece_ranges(const Programs& programs, const FlatUnit& unit, size_t k,
                                     int rank) {
  const auto [whole, part, first_row, begin, end] = member_piece(programs, unit, k, rank);
  // The part as [outer, rows, inner] of which `rows` are the parameter's own.
  int64_t outer = 1, rows = 1, inner = num_elements(whole), whole_rows = 1;
  if (part.dim >= 0) {
    auto dim = static_cast<size_t>(part.dim);
    inner = 1;
    for (size_t d = 0; d < dim; ++d) outer *= whole[d];
    for (size_t d = dim + 1; d < whole.size(); ++d) inner *= whole[d];
    whole_rows = whole[dim];
    rows = part.shape[dim];
  }
  int64_t own_rows = std::clamp<int64_t>(whole_rows - first_row, 0, rows);
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
  const auto [whole, part, first_row, begin, end] = member_piece(programs, unit, k, rank);
  int64_t from = std::max<int64_t>(begin, 0), to = std::min(end, num_elements(part.shape));
  std::vector<PieceBox> boxes;
  if (from >= to) return boxes;
  for (TensorBox& box : boxes_of_range(part.shape, from, to - from)) {
    const int64_t elements = box.elements();
    if (part.dim >= 0) {
      auto dim = static_cast<size_t>(part.dim);
      box.begin[dim] += first_row;
      // Rows behind the parameter's own are padding.
      int64_t own = std::clamp<int64_t>(whole[dim] - box.begin[dim], 0, box.shape[dim]);
      TESSERA_CHECK(own == box.shape[dim] || dim == 0, "a parameter is padded along an inner dim");
      box.shape[dim] = own;
    }
    if (box.elements() > 0) boxes.push_back({std::move(box), from - begin});
    from += elements;
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
