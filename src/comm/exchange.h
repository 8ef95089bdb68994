#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/communicator.h"

namespace tessera {

// A rectangle of elements in a buffer: `rows` runs of `columns` elements, `stride` apart.
struct Part {
  int64_t offset = 0, rows = 0, columns = 0, stride = 0;
};

// What is moved of a part in one round: a rectangle inside it, counted from the part's corner.
struct Piece {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
};

// A piece in memory; stride in bytes.
struct PieceView {
  const std::byte* data = nullptr;
  int64_t stride = 0;
};

// One direct exchange: every rank of a group gives every rank a part of its source, and copies the
// parts that it gets into its target, or combines them in rank order. Every collective is one of
// these, or two. Parts are moved in rounds of at most `piece` elements from each rank to each.
struct Exchange {
  const CommGroup* group = nullptr;
  // Of the call and the exchange's place in it. Transports bring together only what has the same.
  uint64_t identity = 0;
  DType dtype = DType::kF32, target_dtype = DType::kF32;
  bool combine = false;
  Reduction reduction = Reduction::kSum;

  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  // All by index in the group, in elements: what this rank gives to each, in its source; what each
  // gives to this one, in its source there; where that goes in the target.
  std::vector<Part> given, taken, placed;
  int64_t source_elements = 0;
  // All ranks get the same part.
  bool same_for_all = false;
  // The target overlaps what others have yet to read: the source is copied before it is offered.
  bool copies_source = false;

  int64_t piece = 0;
  int64_t rounds = 0;

  Piece piece_of(const Part& part, int64_t round) const;
  const std::byte* source_of(const Part& part, const Piece& at) const;
  std::byte* target_of(const Part& part, const Piece& at) const;
};

// Bytes that a rank holds for all its peers in one round; `piece` bytes times the group's size.
// With 1 MiB the waits between rounds do not show in the time, and two rounds fit in 2 MiB.
int64_t round_bytes(int world_size);

// The exchanges of a call, in order: one, or two for an all_reduce of more than a few KiB (each
// rank combines one part and gives the result to all).
std::vector<Exchange> exchanges_of(const CommCall& call, int world_size);

// Copies rows of `bytes`; strides in bytes. Does nothing where source and target are the same.
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
               int64_t rows, int64_t bytes);

class PeerTransport;

// Runs one exchange to its end. Every rank of the group but this one is reached by one transport.
void run_exchange(const Exchange& exchange, const std::vector<PeerTransport*>& transports);

}  // namespace tessera
