#include "profile/cuda_calls.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {

struct CudaCalls::Library {
  void* handle = nullptr;

  Library(std::initializer_list<std::string> names, int flags) {
    for (const std::string& name : names)
      if (!handle) handle = ::dlopen(name.c_str(), flags | RTLD_NOW | RTLD_LOCAL);
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

CudaCalls::CudaCalls() {
  auto in = [&](std::unique_ptr<Library> library, const char* start, const char* stop) {
    if (!library->find(start, start_) || !library->find(stop, stop_)) return false;
    library_ = std::move(library);
    start_name_ = start;
    stop_name_ = stop;
    return true;
  };
  // Where the backend for GPUs looks first.
  const char* folder = std::getenv("TESSERA_CUDA_LIBRARIES");
  if (in(std::make_unique<Library>(
             std::initializer_list<std::string>{cat(folder ? folder : "", "/libcuda.so.1"),
                                                "libcuda.so.1"},
             RTLD_NOLOAD),
         "cuProfilerStart", "cuProfilerStop"))
    return;
  if (in(std::make_unique<Library>(
             std::initializer_list<std::string>{"libcudart.so", "libcudart.so.13",
                                                "libcudart.so.12", "libcudart.so.11.0"},
             0),
         "cudaProfilerStart", "cudaProfilerStop"))
    return;
  throw UserError(
      "a capture by nsys is asked for (--use_nsight, --profile_nsys, --nsys_start_step), and "
      "libcudart.so with cudaProfilerStart cannot be loaded: put the CUDA runtime where the "
      "loader finds it (LD_LIBRARY_PATH), or leave the option out; --use_profiler needs neither");
}

CudaCalls::~CudaCalls() = default;

void CudaCalls::call(int (*function)(), const char* what) {
  if (const int error = function(); error != 0)
    TESSERA_WARN(cat(what, " failed with CUDA's error ", error, "; the run goes on"));
}

void CudaCalls::start() { call(start_, start_name_); }
void CudaCalls::stop() { call(stop_, stop_name_); }

}  // namespace tessera
