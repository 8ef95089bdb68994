#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <vector>

#include "data/sample_order.h"
#include "data/sample_source.h"

namespace tessera {

// One micro-batch of one rank.
struct Batch {
  int64_t first_sample = 0;              // the job's number of row 0 ...
  int64_t sample_stride = 1;             // ... and how much larger that of the row behind it is
  int64_t rows = 0;                      // rows that hold a sample; those behind them are ignored
  int64_t samples = 0;                   // rows that have a token ...
  int64_t tokens = 0;                    // ... and targets that are not kIgnoreIndex
  std::vector<int32_t> inputs;           // [rows_per_batch, context]
  std::vector<int32_t> targets;          // [rows_per_batch, context]
  std::vector<int32_t> document_starts;  // [rows_per_batch, context] (sample_source.h), or empty
};

// What a batch teaches, as a number: over all targets but kIgnoreIndex the sum of
// mix(input * 2^32 + target) modulo 2^64, where mix is SplitMix64's (Steele, Lea, Flood: "Fast
// splittable pseudorandom number generators", OOPSLA 2014). It does not depend on the order of
// samples and adds up over batches, ranks and steps. So two jobs that have the same sum have seen
// the same pairs of neighbouring tokens, each as often; of joined text, whatever the context is.
uint64_t data_hash(const Batch& batch);

// How often what waits for a batch looks for a request to end.
constexpr std::chrono::milliseconds kInterruptionTick{100};

// Hands out the samples of a job in batches, each rank its own.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The first sample that next() has not handed out to some rank: those of all ranks count.
  virtual int64_t position() const = 0;
  // Epochs completed before position(), counted from 0.
  virtual int64_t epoch() const = 0;
  // Whether there is nothing left.
  virtual bool done() const = 0;
  // Fills `batch` and moves on; false, changing nothing, when done. The buffers that `batch` had
  // are used again: pointers into them end here. Throws Interrupted where a request to end comes
  // and the batch does not, changing nothing.
  virtual bool next(Batch& batch) = 0;
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

// Reads data of which each sample can be read at once. A global batch is the next R*B samples of
// the one order (sample_order.h, or the data set's own); rank r takes rows r*B ... r*B + B - 1 of
// it. Rows at and behind `end` are ignored rows: inputs filler(), targets kIgnoreIndex; a rank may
// get a batch of nothing else.
//
// The whole state is one integer, position(): a multiple of R*B samples behind where it started, or
// `end`. It means the same for every B, R and `end`, so a job resumes on another number of ranks,
// or for more epochs, without losing or repeating a sample.
class BatchReader final : public BatchSource {
 public:
  // `dataset` must live longer.
  BatchReader(const SampleSource& dataset, const BatchReaderOptions& options);
  ~BatchReader() override;
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  int64_t position() const override { return options_.position; }
  int64_t epoch() const override { return options_.position / order_.samples(); }
  bool done() const override { return options_.position >= options_.end; }
  bool next(Batch& batch) override;

 private:
  void fill(int64_t position, Batch& batch) const;
  void start_prefetch();

  const SampleSource& dataset_;
  BatchReaderOptions options_;
  SampleOrder order_;
  Batch ahead_;
  std::atomic<bool> ends_{false};  // asks the thread of prefetch_ to end
  std::future<void> prefetch_;  // fills ahead_ for options_.position; last, so that it ends first
};

}  // namespace tessera
