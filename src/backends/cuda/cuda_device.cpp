#include "backends/cuda/cuda_device.h"

#include <chrono>
#include <thread>
#include <utility>

#include "backends/cuda/id_faults.h"
#include "backends/cuda/kernel_images.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

// Of cuMemHostAlloc: pinned for all contexts, and with an address on the device.
constexpr unsigned kHostAllocPortable = 1, kHostAllocDeviceMap = 2;
// An emulated device has the kernels of its own build under their names.
constexpr char kEmulatedImage[] = "tessera: kernels by name";
constexpr int kOldestCapability = 80;

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

GpuFacts find_gpu(const Driver& driver, int ordinal) {
  const std::vector<GpuFacts> gpus = list_gpus(driver);
  if (gpus.empty())
    throw DeviceError("CUDA: no GPU: the driver is there and shows none to this process");
  if (ordinal < 0 || ordinal >= static_cast<int>(gpus.size()))
    throw DeviceError(cat("CUDA: no GPU ", ordinal, ": the driver shows ", gpus.size(),
                          " to this process; start at most so many ranks on this host, or look at "
                          "CUDA_VISIBLE_DEVICES"));
  return gpus[static_cast<size_t>(ordinal)];
}

}  // namespace

CudaDevice::CudaDevice(int ordinal) : driver_(Driver::get()), facts_(find_gpu(driver_, ordinal)) {
  if (!driver_.emulated() && kernel_images().empty())
    throw DeviceError(
        "CUDA: this build has no CUDA kernels. Build it where there is nvcc with -D "
        "TESSERA_CUDA_KERNELS=ON, or use --device_type cpu");
  if (facts_.major * 10 + facts_.minor < kOldestCapability)
    throw DeviceError(cat("CUDA: ", description(), " has compute capability ", facts_.major, ".",
                          facts_.minor, ", and this program's kernels need 8.0 or later"));
  driver_.call(driver_.device_get, &device_, ordinal);
  driver_.call(driver_.primary_context_retain, &context_, device_);
  make_current();
  for (size_t lane = 0; lane < streams_.size(); ++lane) {
    // Exchanges go first: the next layers wait for them. Less is more urgent.
    const bool exchanges =
        lane == static_cast<size_t>(Lane::kGather) || lane == static_cast<size_t>(Lane::kReduce);
    driver_.call(driver_.stream_create, &streams_[lane], kStreamNonBlocking, exchanges ? -1 : 0);
  }
  driver_.call(driver_.event_create, &finished_, kEventDisableTiming);
  load_kernels();
  id_faults_ = std::make_unique<IdFaults>(*this);
}

CudaDevice::~CudaDevice() {
  progress_watch_.stop();
  driver_.release(driver_.context_set_current, context_);
  for (CUstream stream : streams_) driver_.release(driver_.stream_synchronize, stream);
  id_faults_.reset();
  for (CUmodule module : modules_) driver_.release(driver_.module_unload, module);
  driver_.release(driver_.event_destroy, finished_);
  for (CUstream stream : streams_) driver_.release(driver_.stream_destroy, stream);
  driver_.release(driver_.primary_context_release, device_);
}

std::string CudaDevice::description() const {
  if (driver_.emulated()) return cat("emulated GPU ", facts_.ordinal);
  return cat("GPU ", facts_.ordinal, " (", facts_.name, ")");
}

void CudaDevice::load_kernels() {
  auto load = [&](const void* image) {
    CUmodule module = nullptr;
    driver_.call(driver_.module_load_data, &module, image);
    modules_.push_back(module);
  };
  if (driver_.emulated()) return load(kEmulatedImage);
  for (const std::byte* image : kernel_images()) load(image);
}

Kernel CudaDevice::kernel(std::string_view name) {
  const auto guard = lock();
  auto known = kernels_.find(name);
  if (known == kernels_.end()) {
    CUfunction function = nullptr;
    for (CUmodule module : modules_) {
      const CUresult result =
          driver_.module_get_function(&function, module, std::string(name).c_str());
      if (result == kCudaSuccess) break;
      function = nullptr;
      if (result != kCudaErrorNotFound) driver_.fail(cat("kernel ", name), result);
    }
    if (!function)
      throw DeviceError(cat("CUDA: ", description(), ": this program has no kernel '", name, "'"));
    known = kernels_.emplace(name, function).first;
  }
  return {known->second, known->first};
}

void CudaDevice::launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
                               std::span<void*> arguments) {
  // Without asking a block gets 48 KiB, and what the kernel itself declares counts.
  if (shared_bytes > 0 && shared_bytes_[kernel.function] < shared_bytes) {
    const CUresult result = driver_.function_set_attribute(
        kernel.function, kFunctionAttributeMaxDynamicSharedSize, shared_bytes);
    if (result)
      driver_.fail(cat("kernel ", kernel.name, ", ", shared_bytes, " bytes of shared memory"),
                   result);
    shared_bytes_[kernel.function] = shared_bytes;
  }
  const CUresult result = driver_.launch_kernel(
      kernel.function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
      static_cast<unsigned>(shared_bytes), stream(), arguments.data(), nullptr);
  if (result) {
    driver_.fail(cat("kernel ", kernel.name, ", ", grid.x, " x ", grid.y, " x ", grid.z,
                     " blocks of ", block.x, " x ", block.y, " x ", block.z, " threads"),
                 result);
  }
}

void CudaDevice::fill(void* to, int64_t bytes) {
  driver_.call(driver_.fill_bytes, address(to), static_cast<unsigned char>(0),
               static_cast<size_t>(bytes), stream());
}

bool CudaDevice::is_pinned(const void* memory) const {
  auto next = pinned_.upper_bound(memory);
  if (next == pinned_.begin()) return false;
  const auto& [begin, bytes] = *--next;
  return static_cast<const std::byte*>(memory) < static_cast<const std::byte*>(begin) + bytes;
}

void CudaDevice::copy(void* to, const void* from, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const bool to_host = is_pinned(to), from_host = is_pinned(from);
  if (to_host && !from_host) {
    driver_.call(driver_.copy_to_host, to, address(from), size, stream());
  } else if (from_host && !to_host) {
    driver_.call(driver_.copy_to_device, address(to), from, size, stream());
  } else {
    driver_.call(driver_.copy_on_device, address(to), address(from), size, stream());
  }
}

std::shared_ptr<IdFault> CudaDevice::id_fault(std::string what) {
  return id_faults_->make(std::move(what));
}

void CudaDevice::raise_id_faults() const { id_faults_->raise(); }

void CudaDevice::make_current() const { driver_.call(driver_.context_set_current, context_); }

std::unique_lock<std::recursive_mutex> CudaDevice::lock() const {
  std::unique_lock held(mutex_);
  make_current();
  return held;
}

void CudaDevice::wait(CUevent event) const {
  make_current();
  if (!watch_ && in_flight_.empty()) return driver_.call(driver_.event_synchronize, event);
  const double begin = monotonic_seconds();
  for (int64_t asked = 0;; ++asked) {
    const CUresult result = driver_.event_query(event);
    if (result == kCudaSuccess) return look();
    if (result != kCudaErrorNotReady) driver_.fail(driver_.event_query.name(), result);
    look();
    if (watch_) watch_(monotonic_seconds() - begin);
    // Short waits are answered at once; long ones leave the core to others.
    constexpr int64_t kImpatient = 200;
    if (asked < kImpatient)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void CudaDevice::add_in_flight(WatchedProgram& program, CUevent done) {
  const std::lock_guard held(mutex_);
  in_flight_.add(program, done);
  progress_watch_.start();
}

void CudaDevice::remove_in_flight(const WatchedProgram& program) noexcept {
  const std::lock_guard held(mutex_);
  in_flight_.remove(program);
}

void CudaDevice::look() const {
  if (in_flight_.empty()) return;
  // Who has the lock is about to look, or to wait, itself.
  const std::unique_lock held(mutex_, std::try_to_lock);
  if (!held || driver_.context_set_current(context_) != kCudaSuccess) return;
  in_flight_.look();
}

std::string CudaDevice::where_it_is() const {
  // Who has the lock for long waits for the device, and will say where that is.
  for (int tries = 0; tries < 100; ++tries) {
    if (const std::unique_lock held(mutex_, std::try_to_lock); held) {
      const std::string where = in_flight_.where();
      return where.empty() ? "" : cat(", the device is in ", where);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

void CudaDevice::finish() const {
  const auto guard = lock();
  driver_.call(driver_.event_record, finished_, stream(Lane::kCompute));
  wait(finished_);
}

void CudaDevice::settle() const noexcept {
  try {
    return finish();
  } catch (const Error&) {
  }
  constexpr double kLongest = 5;
  for (const double begin = monotonic_seconds(); monotonic_seconds() - begin < kLongest;) {
    if (driver_.event_query(finished_) != kCudaErrorNotReady) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void* CudaDevice::allocate(int64_t bytes, std::string_view purpose) {
  const auto guard = lock();
  CUdeviceptr memory = 0;
  const CUresult result = driver_.mem_alloc(&memory, static_cast<size_t>(bytes));
  if (result == kCudaErrorOutOfMemory) {
    throw DeviceError(cat("out of memory: cannot allocate ", format_bytes(bytes), " for ", purpose,
                          " on ", description(), ", of whose ", format_bytes(facts_.memory), " ",
                          format_bytes(free_bytes()), " are free and this program has ",
                          format_bytes(allocated_),
                          ": lower --train_batch_size or --max_context_width, or give "
                          "--activation_checkpointing 1; tessera plan says what a run takes"));
  }
  if (result) driver_.fail(cat("allocating ", format_bytes(bytes), " for ", purpose), result);
  auto* block = reinterpret_cast<void*>(memory);
  blocks_[block] = bytes;
  allocated_ += bytes;
  return block;
}

int64_t CudaDevice::free_bytes() const {
  const auto guard = lock();
  size_t free = 0, total = 0;
  driver_.call(driver_.mem_get_info, &free, &total);
  return static_cast<int64_t>(free);
}

void CudaDevice::free(void* memory) noexcept {
  if (!memory) return;
  std::lock_guard guard(mutex_);
  driver_.release(driver_.context_set_current, context_);
  if (before_free_ && before_free_(memory)) return;
  driver_.release(driver_.mem_free, address(memory));
  auto block = blocks_.find(memory);
  if (block == blocks_.end()) return;
  allocated_ -= block->second;
  blocks_.erase(block);
}

void* CudaDevice::allocate_pinned(int64_t bytes, std::string_view purpose) {
  const auto guard = lock();
  void* memory = nullptr;
  const CUresult result = driver_.mem_host_alloc(&memory, static_cast<size_t>(bytes),
                                                 kHostAllocPortable | kHostAllocDeviceMap);
  if (result == kCudaErrorOutOfMemory)
    throw DeviceError(cat("out of memory: cannot pin ", format_bytes(bytes), " of host memory for ",
                          purpose,
                          ": free some, raise the limit of locked memory (ulimit -l), or "
                          "offload less"));
  if (result) driver_.fail(cat("pinning ", format_bytes(bytes), " for ", purpose), result);
  pinned_[memory] = bytes;
  return memory;
}

void CudaDevice::free_pinned(void* memory) noexcept {
  if (!memory) return;
  std::lock_guard guard(mutex_);
  driver_.release(driver_.context_set_current, context_);
  driver_.release(driver_.mem_free_host, memory);
  pinned_.erase(memory);
}

Event::Event(CudaDevice& device) : device_(&device) {
  device.make_current();
  device.driver().call(device.driver().event_create, &event_, kEventDisableTiming);
}

Event::~Event() {
  if (event_) device_->driver().release(device_->driver().event_destroy, event_);
}

Event::Event(Event&& other) noexcept
    : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}

void Event::record(Lane lane) {
  device_->driver().call(device_->driver().event_record, event_, device_->stream(lane));
}

void Event::hold(Lane lane) const {
  device_->driver().call(device_->driver().stream_wait_event, device_->stream(lane), event_, 0u);
}

}  // namespace tessera::cuda
