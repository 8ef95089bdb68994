#pragma once
#include <cstdint>
#include <vector>

namespace tessera {

// Tokens [begin, begin + length) of a document.
struct PackedPiece {
  int64_t document = 0, begin = 0, length = 0;
  bool operator==(const PackedPiece&) const = default;
};

// What one window of the context holds, in the order of documents and places in them.
struct PackedWindow {
  std::vector<PackedPiece> pieces;
  int64_t length = 0;  // of all of them: at most the context
};

// Packs documents into windows of `context` tokens without cutting any that fits into one: best-fit
// decreasing (Johnson, "Near-optimal bin packing algorithms", 1973) over a buffer at a time. A
// document longer than the context is cut into pieces of `context` tokens and a rest; a piece of
// just that size is a window of its own, and leaves the buffer at once. Empty documents are left
// out.
//
// Where the next `buffer` other pieces have come, they are packed: the longest first, of equal ones
// the first to come, each into the window with the least room that is enough, of equal ones the
// oldest, or into a new one. Then the windows are given out in the order in which they were begun.
// So the result depends on the lengths and their order alone, and memory is bounded by the buffer.
class BestFitPacker {
 public:
  // context, buffer > 0.
  BestFitPacker(int64_t context, int64_t buffer);
  // Documents are numbered from 0 in the order in which they come. Appends to `out` the windows
  // that are complete.
  void add(int64_t length, std::vector<PackedWindow>& out);
  // What is left in the buffer; then the packer is as at the beginning, but for the numbers.
  void finish(std::vector<PackedWindow>& out);

 private:
  int64_t context_, buffer_;
  int64_t documents_ = 0;
  std::vector<PackedPiece> pieces_;
};

}  // namespace tessera
