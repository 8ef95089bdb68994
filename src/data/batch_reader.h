#pragma once
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "data/sample_order.h"
#include "data/sample_source.h"

namespace tessera {

// One micro-batch of one rank.
struct Batch {
  int64_t first_sample = 0;      // the job's number of row 0; row i is sample first_sample + i
  int64_t rows = 0;              // rows that hold a sample; those behind them are ignored
  int64_t tokens = 0;            // targets that are not kIgnoreIndex
  std::vector<int32_t> inputs;   // [rows_per_batch, context]
  std::vector<int32_t> targets;  // [rows_per_batch, context]
  std::vector<int32_t> document_starts;  // [rows_per_batch, context] (sample_source.h), or empty
};

struct BatchReaderOptions {
  int64_t rows = 1;      // B, of one rank
  int64_t ranks = 1;     // R data-parallel ranks ...
  int64_t rank = 0;      // ... of which this is one
  int64_t end = 0;       // samples of the whole job: epochs times samples, or fewer
  int64_t position = 0;  // the first sample to read: 0, or that of a checkpoint
  bool shuffle = true;   // off for validation: windows in file order
  uint64_t seed = 0;
  bool document_starts = false;  // fill Batch::document_starts
  bool prefetch = false;         // the next batch is made on a thread of its own, meanwhile
};

// Hands out the samples of a job in batches. A global batch is the next R*B samples of the one
// order (sample_order.h, or the data set's own); rank r takes rows r*B ... r*B + B - 1 of it. Rows
// at and behind `end` are ignored rows: inputs filler(), targets kIgnoreIndex; a rank may get a
// batch of nothing else.
//
// The whole state is one integer, position(): a multiple of R*B samples behind where it started. It
// means the same for every B and R, so a job resumes on another number of ranks without losing or
// repeating a sample.
class BatchReader {
 public:
  // `dataset` must live longer.
  BatchReader(const SampleSource& dataset, const BatchReaderOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // The first sample that next() has not handed out to some rank.
  int64_t position() const { return options_.position; }
  bool done() const { return options_.position >= options_.end; }
  // Epochs completed before position(), counted from 0.
  int64_t epoch() const { return options_.position / order_.samples(); }

  // Fills `batch` and moves on; false, changing nothing, when done. The buffers that `batch` had
  // are used again: pointers into them end here.
  bool next(Batch& batch);

 private:
  void fill(int64_t position, Batch& batch) const;
  void start_prefetch();

  const SampleSource& dataset_;
  BatchReaderOptions options_;
  SampleOrder order_;
  Batch ahead_;
  std::future<void> prefetch_;  // fills ahead_ for options_.position; last, so that it ends first
};

}  // namespace tessera
