#pragma once
#include <stddef.h>
#include <stdint.h>

// What tests ask of the emulated GPUs, besides the functions of CUDA that the library exports. A
// process finds these functions in the library that was loaded as libcuda.so.1.
extern "C" {

// 1. Whoever finds this function runs on the emulation.
int tessera_emulated_gpu(void);
// 1 if accesses of kernels are checked, 0 in the quick variant.
int tessera_emulated_gpu_checks(void);

// Forgets all devices, memory and findings and begins anew. `seed` decides every order; 0: blocks
// and threads in order. What the program under test still holds of CUDA is void.
void tessera_emulated_gpu_reset(uint64_t seed, int devices, int64_t memory_bytes);

// What was found so far. The text is valid until the next call.
int tessera_emulated_gpu_findings(void);
const char* tessera_emulated_gpu_finding(int number);
void tessera_emulated_gpu_clear_findings(void);

// The n-th allocation from the start (memory of the device or pinned memory) fails; 0: none.
void tessera_emulated_gpu_fail_allocation(int64_t n);
// The n-th kernel that runs, from the start, fails; from then on every call of the device gives
// `error`. 0: none.
void tessera_emulated_gpu_fail_launch(int64_t n, int error);

// The n-th cuStreamWaitEvent of the first device does nothing, to see whether its absence is found.
// Only those are counted that put something in order that nothing else did so far. 0: none.
void tessera_emulated_gpu_leave_out_wait(int64_t n);
int64_t tessera_emulated_gpu_waits(void);
// The n-th all-reduce of one i32 of each communicator puts nothing in order, as if it were not
// there; 0: none. And how many of them the communicator has had that has had most.
void tessera_emulated_gpu_leave_out_fence(int64_t n);
int64_t tessera_emulated_gpu_fences(void);
// From now on all communicators that there are give `error` (a ncclResult), and what they have
// begun is never done.
void tessera_emulated_gpu_break_communicators(int error);

// Calls of NCCL on communicators that do not block are in progress until somebody has asked some
// times, and the next call must wait for that. Off by default.
void tessera_emulated_gpu_lagging_nccl(int on);
// NCCL's sums are taken as its rings do: each part of the whole in another order of ranks.
// TESSERA_EMULATED_GPU_RINGS=1 says the same for a process. Off by default: in rank order.
void tessera_emulated_gpu_sum_in_rings(int on);

// No device reaches the memory of another, from now on. TESSERA_EMULATED_GPU_NO_PEERS=1 says the
// same for a process.
void tessera_emulated_gpu_refuse_peers(void);
// ncclCommRegister gives this result on communicators of a device, -1: success and no handle.
void tessera_emulated_gpu_refuse_registration(int device, int result);
// Calls of exchanges that all ranks of this process have enqueued, from the start: all, or those
// whose memory is registered at both ends.
int64_t tessera_emulated_gpu_exchanges(int registered);

int64_t tessera_emulated_gpu_memory_in_use(int device);
int64_t tessera_emulated_gpu_allocations(void);
int64_t tessera_emulated_gpu_launches(void);

// Calls of CUPTI's functions, from the start. Enabling records gives `error`; 0: it works.
int64_t tessera_emulated_gpu_cupti_calls(void);
void tessera_emulated_gpu_refuse_cupti(int error);
// Graphs that were launched, from the start.
int64_t tessera_emulated_gpu_graph_launches(void);

// Bytes of a device's memory that no kernel may touch, around a buffer for example. Checked
// variant.
void tessera_emulated_gpu_guard(const void* memory, size_t bytes, int guarded);
// Bytes count as not yet written. Checked variant.
void tessera_emulated_gpu_unwrite(const void* memory, size_t bytes);
// The host reads or writes pinned memory now: must not be in the way of work that uses it.
void tessera_emulated_gpu_host_access(const void* memory, size_t bytes, int writes);
// Approximations (exp2 ...) are off by up to so many units of the last place, at random.
void tessera_emulated_gpu_approximation(int units);
}
