#include "profile/cuda_calls.h"

#include <dlfcn.h>

#include <initializer_list>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {

struct CudaCalls::Library {
  void* handle = nullptr;

  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!handle) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  ~Library() {
    if (handle) ::dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class F>
  bool find(const char* name, F& function) const {
    if (handle) function = reinterpret_cast<F>(::dlsym(handle, name));
    return function != nullptr;
  }
};

CudaCalls::CudaCalls()
    : runtime_(std::make_unique<Library>(std::initializer_list<const char*>{
          "libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"})),
      ranges_(std::make_unique<Library>(
          std::initializer_list<const char*>{"libnvToolsExt.so.1", "libnvToolsExt.so"})) {
  if (!runtime_->find("cudaProfilerStart", start_) || !runtime_->find("cudaProfilerStop", stop_))
    throw UserError(
        "a capture by nsys is asked for (--use_nsight, --profile_nsys, --nsys_start_step), and "
        "libcudart.so with cudaProfilerStart cannot be loaded: put the CUDA runtime where the "
        "loader finds it (LD_LIBRARY_PATH), or leave the option out; --use_profiler needs neither");
  if (!ranges_->find("nvtxRangePushA", push_) || !ranges_->find("nvtxRangePop", pop_)) {
    TESSERA_WARN(
        "libnvToolsExt.so.1 cannot be loaded: the capture by nsys will have no NVTX ranges");
    push_ = nullptr;
  }
}

CudaCalls::~CudaCalls() = default;

void CudaCalls::call(int (*function)(), const char* name) {
  if (const int error = function(); error != 0)
    TESSERA_WARN(cat(name, " failed with CUDA's error ", error, "; the run goes on"));
}

void CudaCalls::start() { call(start_, "cudaProfilerStart"); }
void CudaCalls::stop() { call(stop_, "cudaProfilerStop"); }

void CudaCalls::push(const char* name) {
  if (push_) push_(name);
}

void CudaCalls::pop() {
  if (push_) pop_();
}

}  // namespace tessera
