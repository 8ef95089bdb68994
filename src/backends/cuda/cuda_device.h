#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/progress_watch.h"
#include "backends/cuda/runs_in_flight.h"
#include "ir/op.h"

namespace tessera::cuda {

class IdFaults;

// One GPU of this machine, through the driver. Any thread may use it; what is enqueued together is
// enqueued under lock().
class CudaDevice final : public Device {
 public:
  // DeviceError that says what to do: there is no such GPU, or none of this program's kernels runs
  // on it. `ordinal` as the driver counts the GPUs that it shows to this process.
  explicit CudaDevice(int ordinal);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const Driver& driver() const { return driver_; }
  const GpuFacts& facts() const { return facts_; }
  // "GPU 0 (NVIDIA H100 80GB HBM3)", "emulated GPU 0".
  std::string description() const;

  Kernel kernel(std::string_view name) override;
  void fill(void* to, int64_t bytes) override;
  // Also from and to pinned memory of this device.
  void copy(void* to, const void* from, int64_t bytes) override;
  CUstream stream() const override { return stream(lane_); }
  int multiprocessors() const override { return facts_.multiprocessors; }
  int64_t shared_bytes() const override { return facts_.shared_bytes; }
  std::shared_ptr<IdFault> id_fault(std::string what) override;
  // InternalError that names op, position and id where a kernel that is done met an id outside of
  // its table.
  void raise_id_faults() const;

  Lane lane() const { return lane_; }  // the current one
  CUstream stream(Lane lane) const { return streams_[static_cast<size_t>(lane)]; }
  // While it lives, the current lane is another.
  class OnLane {
   public:
    OnLane(CudaDevice& device, Lane lane) : device_(device), before_(device.lane_) {
      device.lane_ = lane;
    }
    ~OnLane() { device_.lane_ = before_; }
    OnLane(const OnLane&) = delete;
    OnLane& operator=(const OnLane&) = delete;

   private:
    CudaDevice& device_;
    Lane before_;
  };

  // The driver's calls work on the context that a thread has made its own.
  void make_current() const;
  // For what one thread enqueues together; makes the context its own.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const;

  // Waits until all before the event is done. Throws what failed on the device, or what `watch`
  // throws, which is called now and then while it waits and told for how many seconds.
  void wait(CUevent event) const;
  void set_watch(std::function<void(double waited)> watch) { watch_ = std::move(watch); }
  // Ahead of exchanges that are broken off, which lets the device go on: to listeners it stays
  // where it was.
  void stop_telling() noexcept { in_flight_.stop(); }
  // Hears of memory of the device before it is freed. Must not throw. True: it keeps the memory,
  // and frees it later.
  void set_before_free(std::function<bool(const void* memory)> hears) {
    before_free_ = std::move(hears);
  }
  // Waits for all that was enqueued on the compute lane.
  void finish() const;
  // For destructors: waits until nothing works on memory that goes. A device that has failed does
  // not work; where exchanges were broken off it is soon done.
  void settle() const noexcept;
  // The runs that somebody watches: who waits tells how far they are, and a thread of the device.
  void add_in_flight(WatchedProgram& program, CUevent done);
  void remove_in_flight(const WatchedProgram& program) noexcept;
  // Tells what can be seen now, if nobody else is at it.
  void look() const;
  // ", the device is in a wait for all_gather in layers.3 (forward)"; "" where nobody watches.
  std::string where_it_is() const;

  // Memory, uninitialised. DeviceError that says how much was wanted for what, how much is free,
  // and what to do.
  void* allocate(int64_t bytes, std::string_view purpose);
  void free(void* memory) noexcept;
  void* allocate_pinned(int64_t bytes, std::string_view purpose);
  void free_pinned(void* memory) noexcept;
  bool is_pinned(const void* memory) const;
  int64_t free_bytes() const;
  int64_t allocated_bytes() const { return allocated_; }  // of the device's memory

  // Runs of programs that were started; any thread may ask.
  void count_run() { ++runs_; }
  int64_t runs() const { return runs_; }

 private:
  void launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
                     std::span<void*> arguments) override;
  void load_kernels();

  const Driver& driver_;
  GpuFacts facts_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::array<CUstream, 4> streams_{};
  CUevent finished_ = nullptr;
  Lane lane_ = Lane::kCompute;
  std::vector<CUmodule> modules_;
  std::map<std::string, CUfunction, std::less<>> kernels_;
  std::map<CUfunction, int> shared_bytes_;  // beyond what a kernel may have by itself
  std::map<const void*, int64_t> pinned_;   // blocks by address
  std::map<const void*, int64_t> blocks_;
  int64_t allocated_ = 0;
  std::atomic<int64_t> runs_ = 0;
  std::function<void(double waited)> watch_;
  std::function<bool(const void* memory)> before_free_;
  mutable RunsInFlight in_flight_{driver_};
  std::unique_ptr<IdFaults> id_faults_;
  mutable std::recursive_mutex mutex_;
  ProgressWatch progress_watch_{[this] { look(); }};
};

// An event of a device.
class Event {
 public:
  explicit Event(CudaDevice& device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  CUevent get() const { return event_; }
  void record(Lane lane);
  // What comes behind it on the lane waits for the event.
  void hold(Lane lane) const;

 private:
  CudaDevice* device_;
  CUevent event_ = nullptr;
};

}  // namespace tessera::cuda
