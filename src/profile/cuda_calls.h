#pragma once
#include <memory>

namespace tessera {

// What tells NVIDIA's profilers when to capture. The functions are looked up when they are first
// needed: in the driver that this process has loaded for its GPU, or in CUDA's runtime. Nothing is
// linked against them.
class CudaCalls {
 public:
  // UserError where there is neither.
  CudaCalls();
  ~CudaCalls();
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;

  // The borders of --capture-range=cudaProfilerApi. Where they fail a warning says so.
  void start();
  void stop();

 private:
  struct Library;
  void call(int (*function)(), const char* what);
  std::unique_ptr<Library> library_;
  int (*start_)() = nullptr;
  int (*stop_)() = nullptr;
  const char *start_name_ = "", *stop_name_ = "";
};

}  // namespace tessera
