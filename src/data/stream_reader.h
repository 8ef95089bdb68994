#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/batch_reader.h"
#include "data/stream_lane.h"

namespace tessera {

// Where a stream is: the lanes at a sample of the job.
struct StreamState {
  int64_t position = 0;                // samples that were handed out, over all ranks
  std::map<int64_t, LaneState> lanes;  // by number; one that is missing is at its beginning
};

// Bytes to keep, and back: what the ranks know together. `fingerprint`: of what the lanes are made
// of. UserError, naming `name`, where they are damaged.
std::string to_bytes(const StreamState& state);
StreamState stream_state_from_bytes(std::string_view bytes, size_t sources,
                                    const std::string& name);

// Changes where lanes would give other tokens: their number, the files and how they are read, the
// seed. Not the context: a lane goes on with its next token in windows of any length; nor what
// becomes of broken lines, which no place counts. `skips_bad_lines`: as checkpoints of streams once
// had it where those were left out.
uint64_t stream_fingerprint(const StreamSettings& settings, uint64_t tokenizer_fingerprint,
                            bool skips_bad_lines = false);

struct StreamReaderOptions {
  int64_t rows = 1;              // B, of one rank
  int64_t ranks = 1;             // R data-parallel ranks ...
  int64_t rank = 0;              // ... of which this is one
  bool document_starts = false;  // fill Batch::document_starts
  int threads = 1;               // that read and encode; they change nothing of what is read
  int64_t ahead = 2;             // batches that they are ahead of next()
};

// Reads streams of documents in lanes (StreamSettings). A global batch is the next R*B samples;
// rank r takes those whose number is r modulo R, and reads the lanes that these come from: where R
// divides the number of lanes, lanes of its own. A rank that shares a lane reads all of it and
// leaves out what belongs to the others.
//
// Lanes end one by one: a batch may have rows without tokens, and none with any. next() goes on
// giving such batches: when all lanes of all ranks have ended is for the ranks to agree on. done()
// says it of those of this rank.
class StreamReader final : public BatchSource {
 public:
  // `settings` must live longer. `state` has at least the lanes of this rank.
  StreamReader(const StreamSettings& settings, const StreamReaderOptions& options,
               const StreamState& state = {});
  ~StreamReader() override;  // ends what is being read
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  int64_t position() const override { return state_.position; }
  // The least of this rank's lanes', but for those that have ended; the most where all have.
  int64_t epoch() const override;
  bool done() const override;
  // Never false. What the readers throw.
  bool next(Batch& batch) override;
  // take_back(): position() and state() are what they were when keep() was called last. Nothing
  // can be read behind it.
  void keep();
  void take_back();

  // How often all that this rank's lanes read has been read whole; epoch() of one data set.
  int64_t passes() const;
  // Where the lanes are of which this rank is the first to read them.
  StreamState state() const;

  // Batches that were ready when next() was called last, and what the threads have spent so far.
  int64_t queue_depth() const { return depth_; }
  LaneTimes times() const;

 private:
  struct Ahead {
    int64_t position = 0;  // of the global batch
    Batch batch;
    std::map<int64_t, LaneState> lanes;  // those that it read, behind it
    int64_t samples = 0, tokens = 0;
    size_t left = 0;  // threads that still work on it
  };
  void work(size_t thread);
  void fill(Ahead& ahead, size_t thread);
  bool takes(int64_t sample) const { return sample % options_.ranks == options_.rank; }
  int64_t first_row(int64_t position) const;
  void prepare(Ahead& ahead, int64_t position) const;

  const StreamSettings& settings_;
  StreamReaderOptions options_;
  StreamState state_;                                     // of this rank's lanes, at position()
  StreamState kept_;                                      // where keep() was: what differs
  std::vector<std::vector<int64_t>> thread_lanes_;        // whose lanes are whose
  std::map<int64_t, std::unique_ptr<StreamLane>> lanes_;  // each used by one thread alone
  std::map<int64_t, int64_t> first_rank_;                 // that reads a lane
  int64_t depth_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Ahead>> ahead_;  // in order; those at the front may be ready
  std::exception_ptr failure_;
  LaneTimes times_;
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tessera
