#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cuda/driver.h"
#include "tests/cuda/emulator/emulated_gpu.h"

namespace tessera::cuda {

// Tests of the backend on the emulated GPU, which the program finds as it finds a real one. A test
// program has one variant of it, "quick" unless TESSERA_EMULATED_VARIANT says "checked". Where that
// is "none" it is this machine's GPU, on which goldens and ranks run: nothing can be asked of the
// emulation.
class CudaTest : public testing::Test {
 protected:
  static constexpr int64_t kMemory = int64_t{1} << 30;

  void SetUp() override {
    const char* variant = std::getenv("TESSERA_EMULATED_VARIANT");
    if (variant && std::string(variant) == "none") return;
    const std::string folder =
        std::string(TESSERA_EMULATED_GPU) + "/" + (variant ? variant : "quick");
    ::setenv("TESSERA_CUDA_LIBRARIES", folder.c_str(), 1);
    library_ = ::dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
    reset(1);
  }
  // What was found of wrong order or access fails the test.
  void TearDown() override {
    for (const std::string& text : findings()) ADD_FAILURE() << "found: " << text;
  }

  bool emulated() const { return library_ != nullptr; }
  // Of the emulation a test may have as many as it wants.
  bool has_gpus(int count) const {
    return emulated() || std::ssize(list_gpus(Driver::get())) >= count;
  }
  // Before a device is made: all is void that was made on one.
  void reset(uint64_t seed, int devices = 1, int64_t memory = kMemory) {
    if (!library_) return;
    function<decltype(tessera_emulated_gpu_reset)>("reset")(seed, devices, memory);
    // The program starts the driver once a process.
    reinterpret_cast<int (*)(unsigned)>(::dlsym(library_, "cuInit"))(0);
  }
  std::vector<std::string> findings() {
    std::vector<std::string> texts;
    if (!library_) return texts;
    const int count = function<decltype(tessera_emulated_gpu_findings)>("findings")();
    for (int n = 0; n < count; ++n)
      texts.emplace_back(function<decltype(tessera_emulated_gpu_finding)>("finding")(n));
    function<decltype(tessera_emulated_gpu_clear_findings)>("clear_findings")();
    return texts;
  }
  int64_t memory_in_use() {
    return function<decltype(tessera_emulated_gpu_memory_in_use)>("memory_in_use")(0);
  }
  int64_t launches() { return function<decltype(tessera_emulated_gpu_launches)>("launches")(); }
  // Kernels and allocations are counted from reset().
  void fail_launch(int64_t n, int error) {
    function<decltype(tessera_emulated_gpu_fail_launch)>("fail_launch")(n, error);
  }
  // The n-th wait of a stream for an event, counted from reset(), does nothing; 0: none.
  void leave_out_wait(int64_t n) {
    function<decltype(tessera_emulated_gpu_leave_out_wait)>("leave_out_wait")(n);
  }
  int64_t waits() { return function<decltype(tessera_emulated_gpu_waits)>("waits")(); }
  // The n-th fence of each communicator, counted from reset(), orders nothing; 0: none.
  void leave_out_fence(int64_t n) {
    function<decltype(tessera_emulated_gpu_leave_out_fence)>("leave_out_fence")(n);
  }
  int64_t fences() { return function<decltype(tessera_emulated_gpu_fences)>("fences")(); }
  // Calls of NCCL are in progress for a while, until reset().
  void lag_behind() { function<decltype(tessera_emulated_gpu_lagging_nccl)>("lagging_nccl")(1); }
  // NCCL adds in another order than that of ranks, until reset().
  void sum_in_rings() { function<decltype(tessera_emulated_gpu_sum_in_rings)>("sum_in_rings")(1); }
  // Memory is not registered with NCCL on a device: ncclCommRegister gives this result.
  void refuse_registration(int device, int result) {
    function<decltype(tessera_emulated_gpu_refuse_registration)>("refuse_registration")(device,
                                                                                        result);
  }
  // Communicators that there are give this result from now on.
  void break_communicators(int result) {
    function<decltype(tessera_emulated_gpu_break_communicators)>("break_communicators")(result);
  }
  void refuse_peers() { function<decltype(tessera_emulated_gpu_refuse_peers)>("refuse_peers")(); }
  int64_t exchanges(bool registered) {
    return function<decltype(tessera_emulated_gpu_exchanges)>("exchanges")(registered);
  }
  int64_t graph_launches() {
    return function<decltype(tessera_emulated_gpu_graph_launches)>("graph_launches")();
  }
  int64_t cupti_calls() {
    return function<decltype(tessera_emulated_gpu_cupti_calls)>("cupti_calls")();
  }
  void refuse_cupti(int error) {
    function<decltype(tessera_emulated_gpu_refuse_cupti)>("refuse_cupti")(error);
  }
  void fail_allocation(int64_t n) {
    function<decltype(tessera_emulated_gpu_fail_allocation)>("fail_allocation")(n);
  }

 private:
  template <class Function>
  Function* function(const std::string& name) {
    return reinterpret_cast<Function*>(::dlsym(library_, ("tessera_emulated_gpu_" + name).c_str()));
  }
  void* library_ = nullptr;
};

}  // namespace tessera::cuda
