#include "profile/cuda_calls.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <string>

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
  auto add = [&](std::initializer_list<std::string> names, int flags, const char* start,
                 const char* stop) {
    Borders borders{std::make_unique<Library>(names, flags), start, stop};
    if (borders.library->find(start, borders.start) && borders.library->find(stop, borders.stop))
      known_.push_back(std::move(borders));
  };
  // Where the backend for GPUs looks first.
  const char* folder = std::getenv("TESSERA_CUDA_LIBRARIES");
  add({cat(folder ? folder : "", "/libcuda.so.1"), "libcuda.so.1"}, RTLD_NOLOAD, "cuProfilerStart",
      "cuProfilerStop");
  add({"libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}, 0,
      "cudaProfilerStart", "cudaProfilerStop");
  if (known_.empty())
    TESSERA_WARN(
        "a capture by nsys is asked for (--use_nsight, --profile_nsys, --nsys_start_step), and "
        "libcudart.so with cudaProfilerStart cannot be loaded: there is none, and the run goes on; "
        "put the CUDA runtime where the loader finds it (LD_LIBRARY_PATH); --use_profiler needs "
        "neither");
}

CudaCalls::~CudaCalls() = default;

void CudaCalls::warn(const char* what, int error) {
  TESSERA_WARN(cat(what, " failed with CUDA's error ", error, "; the run goes on"));
}

void CudaCalls::start() {
  for (const Borders& borders : known_) {
    used_ = &borders;
    const int error = borders.start();
    if (error == 0) return;
    if (&borders == &known_.back()) warn(borders.start_name, error);
  }
}

void CudaCalls::stop() {
  if (const int error = used_ ? used_->stop() : 0; error != 0) warn(used_->stop_name, error);
}

}  // namespace tessera
