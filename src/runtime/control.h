#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exchange_listener.h"

namespace tessera {

// What the ranks of a job say to each other that is no tensor: agreements, checkpoints, requests to
// stop. All ranks make the same calls with the same tags, each tag's in the same order; calls of
// different tags know nothing of each other and of the collectives of a Communicator: any thread
// may make them, in any order, but one thread at a time with one tag. Tags are few: what changes
// from call to call belongs into the text.
//
// Every call has the deadline of the job. A rank that dies, stops, leaves, cannot be reached or
// makes another kind of call with the tag ends the calls of all with a CommError that names the
// call and the rank; from then on every call of the job fails with that cause.
class Control {
 public:
  Control(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // The texts of all ranks, by rank; megabytes are fine.
  std::vector<std::string> exchange(std::string_view tag, std::string_view text) {
    return call(tag, "exchange", text);
  }
  // Returns when all ranks have called it.
  void barrier(std::string_view tag) { call(tag, "barrier", ""); }
  // Whether it is so for any rank.
  bool any(std::string_view tag, bool here);

  // Tells all ranks that this one has failed and why, so that they end with
  // "rank 2 failed: <reason>" and not at their deadline.
  virtual void report_failure(std::string_view reason) noexcept = 0;

  // Calls `action` once with the cause when the job has failed, by this rank or another: on the
  // thread that finds out, or at once.
  virtual void on_failure(std::function<void(const std::string& cause)> action) = 0;
  // The same, before any thread of this rank hears of it: they still are where the failure met
  // them.
  virtual void before_failure(std::function<void(const std::string& cause)> action) = 0;
  // Who hears of the calls from now on, and outlives them. To be called while there are none.
  void listen(ExchangeListener* listener) { listener_ = listener; }

 protected:
  // The texts of all; `kind` is compared.
  virtual std::vector<std::string> meet(std::string_view tag, std::string_view kind,
                                        std::string_view text) = 0;

 private:
  std::vector<std::string> call(std::string_view tag, std::string_view kind, std::string_view text);

  int rank_, world_size_;
  ExchangeListener* listener_ = nullptr;
};

// Work of the ranks that are `chosen`, which may take longer than a call may: all ranks meet every
// second meanwhile, by calls of this tag, and return after it. A request to end any of them
// (base/interruption.h) is one to all. Throws what `work` does. Where a call fails `abandon` (may
// be null) is called, then the work is waited for.
void while_others_wait(Control& control, bool chosen, const std::string& tag,
                       const std::function<void()>& work,
                       const std::function<void()>& abandon = {});

}  // namespace tessera
