#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/driver_api.h"
#include "backends/cuda/library.h"

namespace tessera::cuda {

// NVIDIA's driver of this machine, libcuda.so.1.
class Driver {
 public:
  // Loaded and started at the first call. DeviceError that says what to do: there is no driver, it
  // is older than CUDA 12, or it does not start.
  static const Driver& get();

  // 13000: CUDA 13.0.
  int version() const { return version_; }
  std::string version_text() const;
  const std::string& path() const { return library_.path(); }
  // Whether it is a double of the driver that works on the host, made for tests.
  bool emulated() const { return emulated_; }

  // DeviceError "CUDA: cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  template <class... Parameters, class... Given>
  void call(const Entry<CUresult(Parameters...)>& entry, Given... given) const {
    if (const CUresult result = entry(given...)) fail(entry.name(), result);
  }
  // For destructors: what goes wrong there nobody can mend.
  template <class... Parameters, class... Given>
  void release(const Entry<CUresult(Parameters...)>& entry, Given... given) const noexcept {
    static_cast<void>(entry(given...));
  }
  [[noreturn]] void fail(const std::string& what, CUresult result) const;
  // "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  std::string text_of(CUresult result) const;

#define TESSERA_MEMBER(library_name, own_name, parameters) \
  Entry<CUresult parameters> own_name{#library_name};
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

 private:
  Driver();

  Library library_;
  int version_ = 0;
  bool emulated_ = false;
};

struct GpuFacts {
  int ordinal = 0;
  std::string name;    // "NVIDIA H100 80GB HBM3"
  std::string pci_id;  // "0000:1B:00.0"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  // that a block may have
  int64_t memory = 0;    // bytes
};
// The GPUs that the driver shows to this process.
std::vector<GpuFacts> list_gpus(const Driver& driver);

}  // namespace tessera::cuda
