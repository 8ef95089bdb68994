#pragma once
#include <memory>

namespace tessera {

// What tells NVIDIA's profilers when to capture and what a moment belongs to. The functions are
// looked up in the libraries of CUDA when they are first needed: nothing is linked against them.
class CudaCalls {
 public:
  // UserError where there is no libcudart; without libnvToolsExt, a warning, and no ranges.
  CudaCalls();
  ~CudaCalls();
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;

  // cudaProfilerStart, cudaProfilerStop: the borders of --capture-range=cudaProfilerApi. Where they
  // fail a warning says so.
  void start();
  void stop();
  // nvtxRangePushA, nvtxRangePop: a range inside those of the same thread that are open.
  void push(const char* name);
  void pop();

 private:
  struct Library;
  void call(int (*function)(), const char* name);
  std::unique_ptr<Library> runtime_, ranges_;
  int (*start_)() = nullptr;
  int (*stop_)() = nullptr;
  int (*push_)(const char*) = nullptr;
  int (*pop_)() = nullptr;
};

}  // namespace tessera
