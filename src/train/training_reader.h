#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_reader.h"
#include "data/stream_reader.h"
#include "options/run_config.h"
#include "programs/parallelism.h"
#include "runtime/control.h"
#include "train/training_data.h"

namespace tessera {

// False where it is cut short by a request to end or, which goes to `error`, an error of the data.
bool try_reading(const std::function<void()>& read, std::string& error);

// How a training run gets its batches, of data whose length is known and of a stream. What is not
// const is called by all ranks together.
class TrainingReader {
 public:
  // From sample `position` on; a stream from `state`, which a checkpoint had. All that is referred
  // to must live longer.
  TrainingReader(const RunConfig& config, const Parallelism& parallelism, const TrainingData& data,
                 Control* control, int64_t position, StreamState state);

  // kStopped: a rank is asked to end before it has them or, which error() says, cannot read them.
  enum class Fetched { kBatches, kEnded, kStopped };
  // The batches of the next step.
  Fetched fetch(std::vector<Batch>& batches, bool is_first_step);
  int64_t samples() const { return samples_; }         // of them, of all ranks
  double seconds() const { return reading_seconds_; }  // that it took, other ranks left out
  const std::string& error() const { return error_; }

  int64_t position() const { return source_->position(); }
  int64_t epoch() const { return stream_ ? epoch_ : source_->epoch(); }
  bool is_stream() const { return stream_ != nullptr; }
  // That a stream had read ahead.
  std::optional<int64_t> batches_ready() const;
  // Of all ranks (batch_reader.h).
  uint64_t hash_on_all_ranks(const std::vector<Batch>& batches) const;
  // The lanes of all ranks, on rank 0.
  StreamState whole_state() const;
  // "a stream of 3 files (1.00 GiB) in 16 lanes, windows of 512 tokens, at most": how many steps
  // follows.
  std::string to_text() const;
  // Warns once, when the pace of a stream has settled, where steps wait for it. `steps` were done
  // before this one.
  void watch_starvation(int64_t steps, double waited_seconds, double stepped_seconds);

 private:
  struct BatchesRead {
    size_t count = 0;
    int64_t samples = 0;
    bool stops = false;  // try_reading() was cut short
  };
  int rank() const { return control_ ? control_->rank() : 0; }
  bool is_first_reader() const;
  Fetched fetch_samples(std::vector<Batch>& batches);
  Fetched fetch_windows(std::vector<Batch>& batches, bool is_first_step);
  BatchesRead read(std::vector<Batch>& batches);
  bool agree_on_stream(const BatchesRead& done);

  const RunConfig& config_;
  const Parallelism& parallelism_;
  const TrainingData& data_;
  Control* control_;
  std::unique_ptr<BatchSource> source_;
  StreamReader* stream_ = nullptr;  // the same, where it is a stream
  int64_t epoch_ = 0, passes_ = 0;  // of a stream: the least of ranks that have some left
  bool stopping_ = false;           // a rank was cut short
  std::string error_;               // of this rank
  int64_t samples_ = 0;
  double reading_seconds_ = 0;
  double waited_seconds_ = 0, stepped_seconds_ = 0;  // of the steps so far
  bool starvation_told_ = false;
};

}  // namespace tessera
