#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/cupti_api.h"
#include "backends/cuda/library.h"
#include "base/clock.h"

namespace tessera::cuda {

// NVIDIA's library of times of what GPUs do, as it is loaded.
class Cupti {
 public:
  // DeviceError if this machine has none.
  static const Cupti& get();
  const std::string& path() const { return library_.path(); }
  std::string version() const;  // "130001", of its interface
  // "an operation ... (CUPTI's error 39)".
  std::string text_of(CUptiResult result) const;

#define TESSERA_MEMBER(library_name, own_name, parameters) \
  Entry<CUptiResult parameters> own_name{#library_name};
  TESSERA_CUPTI_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

 private:
  Cupti();
  Library library_;
};

// Kernels and copies of this process's GPUs with their times, while it lives; one for all who want
// it. Calls of the driver between number() and its end belong to a number that the caller has
// reserved, and so do kernels that they enqueue.
class CuptiActivity {
 public:
  // DeviceError where CUPTI is missing, or refuses: another profiler is at work, or the system does
  // not let users profile.
  static std::shared_ptr<CuptiActivity> share();
  ~CuptiActivity();
  CuptiActivity(const CuptiActivity&) = delete;
  CuptiActivity& operator=(const CuptiActivity&) = delete;

  // The first of so many numbers that nobody else has.
  uint64_t reserve(size_t count);
  // Of the calls of this thread.
  void begin_number(uint64_t number);
  void end_number();

  struct Work {
    uint64_t number = 0;
    TimeSpan at;       // nanoseconds of monotonic_nanoseconds()
    std::string name;  // of a kernel, or what kind of copy
    int64_t bytes = 0;
  };
  // What belongs to the numbers from `first` on, in the order of its begin. All of it is done on
  // the device.
  std::vector<Work> take(uint64_t first, size_t count);

 private:
  CuptiActivity();
  static void requested(uint8_t** buffer, size_t* size, size_t* most_records);
  static void completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                        size_t valid);
  void read(uint8_t* buffer, size_t valid);
  void disable(size_t kinds) noexcept;

  const Cupti& library_;
  std::mutex mutex_;
  uint64_t next_ = 1;
  struct Seen {
    uint32_t correlation = 0;
    uint64_t start = 0, end = 0;
    std::string name;
    int64_t bytes = 0;
  };
  std::vector<Seen> seen_;                // not taken yet
  std::map<uint32_t, uint64_t> numbers_;  // by CUPTI's correlation
};

}  // namespace tessera::cuda
