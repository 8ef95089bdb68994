#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/driver_api.h"
#include "tests/cuda/emulator/emulated_gpu.h"

// The emulated GPU as a test of the emulator uses it: through the driver's functions alone, found
// with dlopen as the program finds them.
namespace tessera::cuda {

class EmulatedCuda {
 public:
  // "checked" or "quick".
  explicit EmulatedCuda(const std::string& variant = "checked", uint64_t seed = 1, int devices = 1,
                        int64_t memory_bytes = int64_t{1} << 30)
      : library_(
            dlopen((std::string(TESSERA_EMULATED_GPU) + "/" + variant + "/libcuda.so.1").c_str(),
                   RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) {
      ADD_FAILURE() << dlerror();
      return;
    }
#define TESSERA_LOAD(name, member, parameters) load(#name, member);
    TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
#define TESSERA_LOAD(name) load("tessera_emulated_gpu_" #name, name)
    TESSERA_LOAD(reset), TESSERA_LOAD(findings), TESSERA_LOAD(finding),
        TESSERA_LOAD(clear_findings), TESSERA_LOAD(fail_allocation), TESSERA_LOAD(fail_launch),
        TESSERA_LOAD(memory_in_use), TESSERA_LOAD(guard), TESSERA_LOAD(host_access),
        TESSERA_LOAD(approximation), TESSERA_LOAD(leave_out_wait), TESSERA_LOAD(waits);
#undef TESSERA_LOAD
    reset(seed, devices, memory_bytes);
    EXPECT_EQ(init(0), kCudaSuccess);
    use_device(0);
  }
  // What was found and not taken is a failure of the test.
  ~EmulatedCuda() {
    for (const std::string& text : take_findings()) ADD_FAILURE() << "found: " << text;
  }
  EmulatedCuda(const EmulatedCuda&) = delete;
  EmulatedCuda& operator=(const EmulatedCuda&) = delete;

#define TESSERA_MEMBER(name, member, parameters) CUresult(*member) parameters = nullptr;
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  decltype(&tessera_emulated_gpu_reset) reset = nullptr;
  decltype(&tessera_emulated_gpu_findings) findings = nullptr;
  decltype(&tessera_emulated_gpu_finding) finding = nullptr;
  decltype(&tessera_emulated_gpu_clear_findings) clear_findings = nullptr;
  decltype(&tessera_emulated_gpu_fail_allocation) fail_allocation = nullptr;
  decltype(&tessera_emulated_gpu_fail_launch) fail_launch = nullptr;
  decltype(&tessera_emulated_gpu_memory_in_use) memory_in_use = nullptr;
  decltype(&tessera_emulated_gpu_guard) guard = nullptr;
  decltype(&tessera_emulated_gpu_host_access) host_access = nullptr;
  decltype(&tessera_emulated_gpu_approximation) approximation = nullptr;
  decltype(&tessera_emulated_gpu_leave_out_wait) leave_out_wait = nullptr;
  decltype(&tessera_emulated_gpu_waits) waits = nullptr;

  template <class Function>
  void load(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (!function) ADD_FAILURE() << "no " << name;
  }

  std::vector<std::string> take_findings() {
    std::vector<std::string> texts;
    for (int n = 0; n < findings(); ++n) texts.emplace_back(finding(n));
    clear_findings();
    return texts;
  }
  // Expects that there are findings and that one of them has these words.
  void expect_found(std::string_view words) {
    const auto texts = take_findings();
    std::string all;
    bool found = false;
    for (const std::string& text : texts) {
      found = found || text.find(words) != std::string::npos;
      all += "  " + text + "\n";
    }
    EXPECT_TRUE(found) << "not found: " << words << "; but:\n" << all;
  }

  void use_device(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(primary_context_retain(&context, device), kCudaSuccess);
    EXPECT_EQ(context_set_current(context), kCudaSuccess);
  }
  CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(stream_create(&stream, kStreamNonBlocking, 0), kCudaSuccess);
    return stream;
  }
  CUevent make_event() {
    CUevent event = nullptr;
    EXPECT_EQ(event_create(&event, kEventDisableTiming), kCudaSuccess);
    return event;
  }
  void* pinned(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(mem_host_alloc(&memory, bytes, 0), kCudaSuccess);
    return memory;
  }
  template <class T>
  T* allocate(size_t count) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(mem_alloc(&memory, count * sizeof(T)), kCudaSuccess);
    return reinterpret_cast<T*>(memory);
  }
  template <class T>
  void upload(T* to, const std::vector<T>& values, CUstream stream) {
    EXPECT_EQ(copy_to_device(address(to), values.data(), values.size() * sizeof(T), stream),
              kCudaSuccess);
  }
  template <class T>
  T* upload(const std::vector<T>& values, CUstream stream) {
    T* memory = allocate<T>(values.size());
    upload(memory, values, stream);
    return memory;
  }
  template <class T>
  std::vector<T> download(const T* from, size_t count, CUstream stream) {
    std::vector<T> values(count);
    EXPECT_EQ(copy_to_host(values.data(), address(from), count * sizeof(T), stream), kCudaSuccess);
    return values;
  }
  // What body() enqueues there, as a graph to be launched.
  template <class Body>
  CUgraphExec captured(CUstream stream, Body body) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(stream_begin_capture(stream, kStreamCaptureModeThreadLocal), kCudaSuccess);
    body();
    EXPECT_EQ(stream_end_capture(stream, &graph), kCudaSuccess);
    EXPECT_EQ(graph_instantiate(&executable, graph, 0), kCudaSuccess);
    EXPECT_EQ(graph_destroy(graph), kCudaSuccess);
    return executable;
  }
  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

  // Of the thread's current device.
  CUfunction function(const char* name) {
    CUmodule module = nullptr;
    EXPECT_EQ(module_load_data(&module, "any image"), kCudaSuccess);
    CUfunction made = nullptr;
    EXPECT_EQ(module_get_function(&made, module, name), kCudaSuccess) << name;
    return made;
  }
  template <class... Arguments>
  CUresult launch(const char* name, unsigned blocks, unsigned threads, CUstream stream,
                  unsigned shared_bytes, Arguments... arguments) {
    void* parameters[] = {&arguments..., nullptr};
    return launch_kernel(function(name), blocks, 1, 1, threads, 1, 1, shared_bytes, stream,
                         parameters, nullptr);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace tessera::cuda
