#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

// What is known about the ranks of a job: the first failure, who has left in good order, who waits
// for whom, and in which calls they meet. Ranks that are threads share one; of processes each has
// its own, and the connections between them keep them in step. Thread-safe.
class Health {
 public:
  explicit Health(int world_size);

  // The first cause stays; later ones are ignored.
  void fail(std::string cause);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string cause() const;
  // Throws CommError with the cause if there is one.
  void check() const;
  // Whether a failure is there or arrives within `time`: news of the cause may take another way
  // than what it breaks.
  bool wait_failed(std::chrono::milliseconds time) const;

  void leave(int rank);
  // Returns when these ranks have left, one has failed or the time is over.
  void wait_left(const std::vector<int>& ranks, std::chrono::milliseconds time) const;
  bool has_left(int rank) const {
    return left_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }

  // While it lives, rank `self` waits for rank `rank`, in `call` or, without one, in its last
  // begin_call(). Any number at a time, of any threads. `call` must outlive it.
  class Wait {
   public:
    Wait(Health& health, int self, int rank, std::string_view call = {});
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    friend class Health;
    Health& health_;
    int self_, rank_;
    std::string_view call_;
  };
  static constexpr int kNobody = -1;
  struct Waiting {
    int rank = kNobody;
    std::string call;  // "'checkpoint' (exchange of all ranks)"
  };
  // The oldest wait of a rank.
  Waiting waits_for(int rank) const;
  // All ranks for which it waits.
  std::vector<int> waited_for(int rank) const;
  // How to learn for whom another rank waits; none when it does not say.
  using Ask = std::function<std::optional<Waiting>(int rank)>;
  void set_ask(Ask ask) { ask_ = std::move(ask); }
  // Rank `self` has waited for `rank` to the deadline. If no other failure arrives in a moment,
  // this is one. That rank may wait itself: it names the one at the end of such a chain, "rank 3
  // did not answer rank 0 within 300 s", or where they wait for each other both and in what the
  // other does.
  void fail_late(int rank, int self, std::chrono::milliseconds deadline);

  // Every pair of ranks must meet in the same calls in the same order, so the last call of either
  // with the other is the same one, if it has the same number on both sides.
  struct Meeting {
    uint64_t number = 0;                      // calls of the pair so far
    std::shared_ptr<const std::string> call;  // what the last one is
  };
  // Rank `self` begins a call with `ranks`.
  void begin_call(int self, const std::vector<int>& ranks, std::string call);
  Meeting last_call(int self, int rank) const;
  // Fails, naming both calls, if rank `self` and `rank`, whose last call with it is `theirs`, meet
  // in different ones.
  void compare_calls(int self, int rank, const Meeting& theirs);
  void fail_out_of_step(int self, const std::string& own, int rank, const std::string& theirs);

  // Called once, by the thread that reports the first failure, or at once if there is one.
  using Action = std::function<void(const std::string& cause)>;
  void on_failure(Action action);
  // The same, before anybody hears of it, while all threads are where the failure met them: for
  // what looks at them. It must be short.
  void before_failure(Action action);

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<std::thread::id> reporter_;  // of the first failure
  mutable std::condition_variable changed_;
  std::string cause_;
  std::vector<std::atomic<bool>> left_;
  mutable std::mutex waits_mutex_;
  std::vector<std::vector<const Wait*>> waits_;  // by rank, the oldest first
  Ask ask_;
  mutable std::mutex calls_mutex_;
  std::vector<std::vector<Meeting>> calls_;  // by rank and the other's; empty: none so far
  std::vector<Action> before_, actions_;
};

// "rank 3 has left the job"
std::string left_the_job(int rank);
// Of RunningTime, for who waits for a deadline: a machine with more ranks than cores may keep one
// from looking for some naps.
inline constexpr double kLongestLook = 1;
double seconds_of(std::chrono::milliseconds time);
// "300 s", "0.5 s"
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace tessera
