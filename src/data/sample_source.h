#pragma once
#include <cstdint>
#include <span>

#include "base/ignore_index.h"

namespace tessera {

// How documents become samples: joined and cut, whole ones together, or one each.
enum class Packing : uint8_t { kConcatenate, kBestFit, kRows };

// Where a sample goes: one row of a batch, T = context elements in each span.
struct SampleRow {
  std::span<int32_t> inputs;   // ids; where the sample holds none, any id
  std::span<int32_t> targets;  // what follows each input, or kIgnoreIndex
  // Empty where nobody asks. Else for each position that of the first token of its document within
  // the row: attention and positions do not reach before it.
  std::span<int32_t> document_starts;
};

// The samples of a data set, which can be read in any order: sample `i` is the same for ever.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t context() const = 0;  // T
  virtual int32_t filler() const = 0;   // the id that stands where a sample holds none
  virtual int64_t samples() const = 0;  // > 0
  // Whether sample() takes any i >= 0, in the order in which a job reads them: samples() is then
  // what an epoch has, and the source itself goes on from one to the next.
  virtual bool in_own_order() const { return false; }
  // Fills `row` with sample `i` in [0, samples()). Returns how many targets are not kIgnoreIndex.
  // By many threads at once.
  virtual int64_t sample(int64_t i, const SampleRow& row) const = 0;
};

}  // namespace tessera
