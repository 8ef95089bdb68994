#pragma once
#include <memory>
#include <vector>

namespace tessera {

// What tells NVIDIA's profilers when to capture. The functions are looked up when they are first
// needed: in the driver that this process has loaded for its GPU, and in CUDA's runtime, for where
// the driver has no context on this thread. Nothing is linked against them.
class CudaCalls {
 public:
  // Where there is neither, a warning says so, and nothing is told.
  CudaCalls();
  ~CudaCalls();
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;

  // The borders of --capture-range=cudaProfilerApi. Where they fail a warning says so.
  void start();
  void stop();

 private:
  struct Library;
  // A pair of functions and where they come from.
  struct Borders {
    std::unique_ptr<Library> library;
    const char *start_name, *stop_name;
    int (*start)() = nullptr;
    int (*stop)() = nullptr;
  };
  static void warn(const char* what, int error);

  std::vector<Borders> known_;  // the first is tried first
  const Borders* used_ = nullptr;
};

}  // namespace tessera
