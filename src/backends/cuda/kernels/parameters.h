#pragma once
#include <cstdint>

// Parameters that a host program gives to kernels by value; compiled by both.
namespace tessera::cuda {

constexpr int kMaxDims = 8;

// An index space in row-major order and where its elements lie in a tensor: dim 0 is the outermost.
struct Walk {
  int32_t dims = 0;
  int64_t sizes[kMaxDims] = {};
  int64_t steps[kMaxDims] = {};
};

// An index space of `count` elements and where they lie in a source and a destination.
struct BoxCopy {
  Walk from, to;
  int64_t count = 1, from_begin = 0, to_begin = 0;
};

// A reduction of `terms` elements for each of `results`.
struct ReduceShape {
  Walk kept, reduced;
  int64_t results = 1, terms = 1;
};

// y[batch, row, column] = sum over terms of a b (+ bias[column]) (+ y): where operands lie.
struct DotShape {
  Walk batch_a, batch_b, rows, columns;
  int64_t batches = 1, row_count = 1, column_count = 1, terms = 1;
  int64_t step_a = 0, step_b = 0, result_stride = 0;
  int32_t accumulate = 0;
};

// An id that was found outside of a table of so many rows: the position after its own; 0: none.
struct IdFault {
  int64_t position_after = 0, id = 0, rows = 0;
};

// Some elements of a table, as bits.
constexpr int kTableChunk = 128;
struct TableChunk {
  uint64_t bits[kTableChunk];
};

// What scatter.cu sorts by one block, and the most rows of an id that one block sums.
constexpr int kSortedBlock = 2048;
constexpr int kScatterPiece = 64;

// Numbers of a rank's elements among those of a whole row of random numbers: base/random_lines.h,
// with the begin of the part still to come.
struct RandomPlaces {
  int64_t lines = 1, width = 1, pitch = 1, run = 1, whole_run = 1;
  int64_t lines_of_begin = 0, columns_of_begin = 0;  // of one index of the cut dim
};

constexpr int kMaxFrequencies = 128;
struct Frequencies {
  float values[kMaxFrequencies];
};
constexpr int kTurnedHeads = 4;  // that a thread of rope turns by the same angles

// Operands of a sum of many.
constexpr int kMaxSummands = 16;
struct Summands {
  const void* x[kMaxSummands];
  int32_t count;
};

// An attention, or its part on one rank. `window` 0: none. Dropout where `keys` are given to the
// kernel: an element is kept where its 16 bits are at least the threshold.
struct AttentionShape {
  int64_t batch = 0, tokens = 0, heads = 0, kv_heads = 0, width = 0;
  int64_t window = 0;
  int32_t causal = 1;
  float scale = 1;
  uint32_t threshold = 0;
  float keep_scale = 1;
  uint64_t stream = 0;
};

// An attention over caches [rows, capacity, kv_heads, width].
struct CachedShape {
  int64_t batch = 0, queries = 0, rows = 0, capacity = 0, heads = 0, kv_heads = 0, width = 0;
  int64_t window = 0;
  float scale = 1;
};

}  // namespace tessera::cuda
