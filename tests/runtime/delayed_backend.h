#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/backend.h"
#include "runtime/host_executable.h"
#include "runtime/kernel_table.h"

namespace tessera {

// A device that works in its own time, with the kernels of a host: programs run behind the host, on
// a thread that begins one when the next was given or somebody waits, and what a plan begins on
// another lane than compute is done at some moment until it is waited for, in the order of its
// lane. The moments follow from `seed`: ranks that exchange must have the same, so that they
// exchange in the same order. State and results can be had through the interfaces only.
class DelayedBackend final : public Backend {
 public:
  // The table must live longer. `allocate` gives the near arena.
  using Allocate = std::function<HostBuffer(int64_t bytes)>;
  DelayedBackend(
      const KernelTable& kernels, uint64_t seed, PlanOptions options = {},
      Allocate allocate = [](int64_t bytes) { return HostBuffer(bytes); });
  ~DelayedBackend() override;

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
  bool runs_ahead() const override { return true; }

  // Runs a job behind all that were given before; returns at once.
  void enqueue(std::function<void()> job);
  // Returns when nothing is left to do; throws what a job threw, from then on every time.
  void drain();
  // The same until something is done that jobs do.
  void drain_until(const std::function<bool()>& done);
  // A number below `bound`.
  uint64_t draw(uint64_t bound);
  // Programs that were begun before the one before them was done.
  int64_t begun_ahead() const { return begun_ahead_; }

 private:
  void loop();

  const KernelTable& kernels_;
  uint64_t seed_, drawn_ = 0;
  PlanOptions options_;
  Allocate allocate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::exception_ptr failure_;
  bool running_ = false, stopping_ = false;
  int64_t waiting_ = 0, begun_ahead_ = 0;
  std::thread thread_;
};

}  // namespace tessera
