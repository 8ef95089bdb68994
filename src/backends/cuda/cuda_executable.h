#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_memory.h"
#include "backends/cuda/executable_listeners.h"
#include "backends/cuda/nccl_communicator.h"
#include "backends/cuda/progress_marks.h"
#include "backends/cuda/run_timer.h"
#include "runtime/plan_addresses.h"
#include "runtime/planned_program.h"

namespace tessera::cuda {

// A planned program on a device. Lanes are streams: what begins on another lane than compute waits
// there for what compute has done so far, and compute waits where the plan says that it must be
// done. Starting enqueues and returns.
//
// The first run goes launch by launch, which loads what libraries load when it is first used; at
// the second all is recorded as one CUDA graph, and from then on a run is one call. Listeners that
// hear of progress change that by the marks that are recorded too; runs of those that hear of every
// instruction go launch by launch, and those of which somebody wants times are waited for.
class CudaExecutable final : public Executable, private WatchedProgram {
 public:
  // `captures`: whether graphs are recorded at all; `cupti`: whether times are taken by it.
  // `communicator`: of the program's exchanges; null where it has none, or is planned only.
  CudaExecutable(CudaDevice& device, PlannedProgram program, bool captures, bool cupti = true,
                 NcclCommunicator* communicator = nullptr);
  ~CudaExecutable() override;

  const Graph& graph() const override { return program_.graph; }
  const Plan* plan() const override { return &program_.plan; }
  ProgramMemory memory() const override {
    return {program_.plan.arena_bytes, program_.plan.far_arena_bytes};
  }
  std::string kernel(size_t node) const override { return program_.launches[node].kernel; }
  std::string passed_over(size_t node) const override { return program_.launches[node].declined; }
  std::vector<Declined> declined() const override { return program_.declined; }
  bool captured() const { return captured_ != nullptr; }

  // Of CudaState and CudaArenas. Programs with exchanges are bound by all ranks at the same time.
  void bind(State& state, Arenas& arenas) override;
  Pending start(const Arguments& arguments, const NodeObserver* observer = nullptr) override;

  bool add_listener(RunListener& listener) override;
  void remove_listener(RunListener& listener) override;

 private:
  void wait(int64_t run) override;
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override;

  std::byte* address(Value v) const {
    return addresses_.at(program_.plan.places[static_cast<size_t>(v.id)]);
  }
  void take(const Arguments& arguments, size_t slot);
  class Timed;
  void walk(const NodeObserver* observer);
  void begin_launch(size_t instruction);
  void observe(size_t node, const NodeObserver& observer, double begin);
  void launch(size_t node);
  void join_lanes();
  void capture();
  void forget_capture();
  void show(size_t node, const NodeObserver& observer, double seconds);
  // A value's bytes to host memory, behind all that was enqueued.
  void read(Place place, std::span<std::byte> to);
  void keep_small_outputs(size_t slot);

  // For listeners: watched_runs.cpp.
  void device_begins() override;
  void device_is_on() override;
  void device_ends() override;
  std::string device_is_in() const override;
  void listeners_changed();
  void issued(size_t instruction);
  void tell_times(int64_t begin);
  std::byte* kept_output(size_t slot, size_t output) const;

  CudaDevice& device_;
  PlannedProgram program_;
  bool captures_, bound_ = false;
  NcclCommunicator* communicator_;
  PlanAddresses addresses_;
  CUgraphExec captured_ = nullptr;
  bool records_ = false;                       // what it enqueues goes into a graph
  std::array<std::optional<Event>, 4> forks_;  // by lane
  std::vector<std::optional<Event>> joins_;    // by node, of other lanes than compute
  std::vector<int32_t> beside_;                // nodes begun and not waited for
  int64_t runs_ = 0;                           // started so far
  // What the host gives to a run and takes from it, in pinned memory: a slot a run, used in turn.
  PinnedBlock pinned_;
  int64_t slot_bytes_ = 0, argument_bytes_ = 0;
  std::vector<Event> done_;  // by slot
  ExecutableListeners listeners_;
  bool cupti_;
  std::optional<ProgressMarks> marks_;  // where somebody hears of progress
  size_t told_ = 0;                     // instructions of the run that the device is in
  std::unique_ptr<RunTimer> timer_;     // where somebody wants times
  bool issues_ = false;                 // a walk is a run, not a recording
};

}  // namespace tessera::cuda
