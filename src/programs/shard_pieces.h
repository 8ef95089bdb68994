#pragma once
#include <cstdint>
#include <vector>

#include "checkpoint/tensor_box.h"
#include "programs/programs.h"

namespace tessera {

// Consecutive elements of a parameter that one rank has in its piece of a unit.
struct PieceRange {
  int64_t global = 0;  // first element, counted in the whole parameter, row-major
  int64_t local = 0;   // the same element, counted in the rank's piece
  int64_t count = 0;
};

// What `rank` has of member k of a unit: ascending, without the padding of a cut vocabulary.
std::vector<PieceRange> piece_ranges(const Programs& programs, const FlatUnit& unit, size_t k,
                                     int rank);

// The same as boxes of the whole parameter, each in consecutive elements of the rank's piece.
struct PieceBox {
  TensorBox box;
  int64_t local = 0;  // its first element, counted in the rank's piece
};
std::vector<PieceBox> piece_boxes(const Programs& programs, const FlatUnit& unit, size_t k,
                                  int rank);

// Whether another rank, of lower number, has the same of member k of a unit.
bool is_copy(const Programs& programs, const FlatUnit& unit, size_t k, int rank);

// Where the members of a unit begin in the piece with this index along the shard axes: the segment
// table of an update. A member that began before counts from 0, one behind the piece from its end.
std::vector<int64_t> segment_begin(const FlatUnit& unit, int shard_index);

}  // namespace tessera
