#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "ir/marks.h"
#include "runtime/exchange_listener.h"
#include "runtime/memory.h"

namespace tessera {

// Ranks of the job that take part in a collective together, in order of their index in the group.
struct CommGroup {
  int id = 0;              // the same number in every rank of every group made by one call
  std::vector<int> ranks;  // ascending ranks of the job
  int index = 0;           // of this rank in `ranks`
  std::string name;        // "shard", "replicate+shard", for messages
  int size() const { return static_cast<int>(ranks.size()); }
};

// n ranks, all counts in elements:
//   kAllGather      input [outer, inner]     output [outer, n, inner]
//   kReduceScatter  input [outer, n, inner]  output [outer, inner]
//   kAllReduce      input [outer, inner]     output [outer, inner]; may be the same address
//   kAllToAll       input [n, inner]         output [n, inner]: part j goes to the rank of index j
enum class CommAction : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };
std::string_view name(CommAction action);

// One collective. Sums are taken in rank order in f32 (f64 for f64, exact for integers) and rounded
// once to output_dtype, which is dtype for everything but a sum of bf16 that is kept in f32. Every
// rank of the group gets the same bits.
struct CommCall {
  CommAction action = CommAction::kAllGather;
  const CommGroup* group = nullptr;
  DType dtype = DType::kF32;         // of the input
  DType output_dtype = DType::kF32;  // of the output
  Reduction reduction = Reduction::kSum;
  int64_t outer = 1, inner = 0;
  const void* input = nullptr;
  void* output = nullptr;
  // What it is for, in messages: "reduce_scatter in layers.3 (backward)". Must outlive the call.
  std::string_view label;
  // Where to say when the call ran, if anywhere; it is said when wait() returns.
  TimeSpan* ran = nullptr;

  int64_t input_elements() const;
  int64_t output_elements() const;
};

// Collectives between the ranks of a job, for tensors; what else they say to each other goes over
// Control. Calls run one after another in the order in which they were started, on a thread of the
// communicator's own; all ranks start the same calls in the same order, so overlapping groups
// cannot block each other.
//
// Every wait has a deadline. A peer that dies, stops or cannot be reached ends the call of every
// other rank of the group with a CommError that names the call and the missing rank; from then on
// every call fails with that error.
class Communicator {
 public:
  using Ticket = int64_t;
  struct Options {
    // A call that makes no progress for so long has failed.
    std::chrono::milliseconds deadline{300'000};
  };

  Communicator(int rank, int world_size, Options options);
  // Ends the thread. Calls that have not begun are dropped.
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const Options& options() const { return options_; }

  // Every rank makes the same groups in the same order, each naming those that it belongs to. The
  // group lives as long as the communicator.
  const CommGroup& make_group(std::vector<int> ranks, std::string name);
  // All ranks of the job.
  const CommGroup& world() const { return *groups_.front(); }

  // Queues a call; the buffers must stay untouched until wait() has returned.
  Ticket start(const CommCall& call);
  // Blocks until the call and all before it are done.
  void wait(Ticket ticket);
  void run(const CommCall& call) { wait(start(call)); }
  // Who hears of the calls that begin from now on, and outlives the communicator.
  void listen(ExchangeListener* listener);
  // What callers have spent in wait() so far.
  double seconds_waited() const { return seconds_waited_.load(std::memory_order_relaxed); }

  // The label of the call that runs now or has failed, "" where there is none: the rank waits for
  // others or moves bytes, or one of them has let it down.
  std::string unfinished_call() const;

  // Memory that peers on the same host read without a copy in between; ordinary memory where there
  // is no such thing. The size is each rank's own. The buffer must not outlive the communicator.
  virtual HostBuffer allocate(int64_t bytes) { return HostBuffer(bytes); }

  // After Control::report_failure: returns when no call runs any more, so that buffers may go.
  void settle() noexcept;

 protected:
  // Runs one call to its end, on the communicator's thread. Throws CommError.
  virtual void perform(const CommCall& call) = 0;
  // A group was made: time to connect. On the caller's thread, before any call on it.
  virtual void prepare_group(const CommGroup&) {}
  // Derived destructors call it before their members go: perform() must not run any more.
  void stop();
  // Whether calls that were started have not been done, and have not failed either.
  bool unfinished() const;

 private:
  void loop();

  int rank_, world_size_;
  Options options_;
  std::vector<std::unique_ptr<CommGroup>> groups_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CommCall> queue_;
  Ticket started_ = 0, finished_ = 0;
  std::exception_ptr failure_;
  ExchangeListener* listener_ = nullptr;
  bool running_ = false;  // perform() is
  std::string label_;     // of the call that began last
  bool stopping_ = false;
  std::atomic<double> seconds_waited_ = 0;
  std::thread thread_;  // begins with the first call
};

}  // namespace tessera
