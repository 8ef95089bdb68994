#include "emulated_gpu.h"

#include "access_checks.h"
#include "findings.h"
#include "machine.h"
#include "nccl_communicators.h"

using tessera::emulated_gpu::machine;

extern "C" {
#pragma GCC visibility push(default)

int tessera_emulated_gpu(void) { return 1; }
int tessera_emulated_gpu_checks(void) { return tessera::simt::checking; }

void tessera_emulated_gpu_reset(uint64_t seed, int devices, int64_t memory_bytes) {
  const std::lock_guard lock(machine().mutex);
  machine().reset(seed, devices, memory_bytes);
}

int tessera_emulated_gpu_findings(void) {
  return static_cast<int>(tessera::emulated_gpu::findings().size());
}
const char* tessera_emulated_gpu_finding(int number) {
  static thread_local std::string text;
  const auto all = tessera::emulated_gpu::findings();
  text = number >= 0 && number < static_cast<int>(all.size()) ? all[static_cast<size_t>(number)]
                                                              : std::string();
  return text.c_str();
}
void tessera_emulated_gpu_clear_findings(void) { tessera::emulated_gpu::clear_findings(); }

void tessera_emulated_gpu_fail_allocation(int64_t n) {
  const std::lock_guard lock(machine().mutex);
  machine().fail_allocation = n;
}
void tessera_emulated_gpu_fail_launch(int64_t n, int error) {
  const std::lock_guard lock(machine().mutex);
  machine().fail_launch = n;
  machine().launch_error = error;
}

void tessera_emulated_gpu_leave_out_wait(int64_t n) {
  const std::lock_guard lock(machine().mutex);
  machine().left_out_wait = n;
}
int64_t tessera_emulated_gpu_waits(void) {
  const std::lock_guard lock(machine().mutex);
  return machine().waits;
}
void tessera_emulated_gpu_leave_out_fence(int64_t n) {
  const std::lock_guard lock(machine().mutex);
  machine().left_out_fence = n;
}
int64_t tessera_emulated_gpu_fences(void) {
  const std::lock_guard lock(machine().mutex);
  return machine().fences;
}
void tessera_emulated_gpu_break_communicators(int error) {
  const std::lock_guard lock(machine().mutex);
  tessera::emulated_gpu::break_communicators(error);
}
void tessera_emulated_gpu_lagging_nccl(int on) {
  const std::lock_guard lock(machine().mutex);
  machine().nccl_lags = on != 0;
}
void tessera_emulated_gpu_sum_in_rings(int on) {
  const std::lock_guard lock(machine().mutex);
  machine().sums_in_rings = on != 0;
}

void tessera_emulated_gpu_refuse_peers(void) {
  const std::lock_guard lock(machine().mutex);
  machine().refuses_peers = true;
}
void tessera_emulated_gpu_refuse_registration(int device, int result) {
  const std::lock_guard lock(machine().mutex);
  machine().refused_registration[device] = result;
}
int64_t tessera_emulated_gpu_exchanges(int registered) {
  const std::lock_guard lock(machine().mutex);
  return registered ? machine().registered_exchanges : machine().exchanges;
}

int64_t tessera_emulated_gpu_memory_in_use(int device) {
  const std::lock_guard lock(machine().mutex);
  return machine().devices.at(static_cast<size_t>(device)).in_use;
}
int64_t tessera_emulated_gpu_allocations(void) {
  const std::lock_guard lock(machine().mutex);
  return machine().allocations;
}
int64_t tessera_emulated_gpu_launches(void) {
  const std::lock_guard lock(machine().mutex);
  return machine().launches;
}

int64_t tessera_emulated_gpu_graph_launches(void) {
  const std::lock_guard lock(machine().mutex);
  return machine().graph_launches;
}

void tessera_emulated_gpu_guard(const void* memory, size_t bytes, int guarded) {
  const std::lock_guard lock(machine().mutex);
  tessera::simt::guard_memory(memory, bytes, guarded != 0);
}
void tessera_emulated_gpu_unwrite(const void* memory, size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  tessera::simt::set_unwritten(memory, bytes);
}
void tessera_emulated_gpu_host_access(const void* memory, size_t bytes, int writes) {
  using namespace tessera::emulated_gpu;
  const std::lock_guard lock(machine().mutex);
  Machine& m = machine();
  Memory* at = m.memory_of(memory, static_cast<int64_t>(bytes), "the host");
  if (!at) return;
  // Work that is not done yet shows what it touches when it runs.
  const Clock before = m.host;
  while (!m.busy.empty()) {
    const int64_t executed = m.executed;
    m.run_some(1);
    if (m.executed == executed) break;
  }
  if (m.host.empty()) m.host.resize(1);
  const Toucher now{0, ++m.host[0], m.ordering.label(writes ? "a write" : "a read"), ++m.executed};
  m.ordering.touch(
      *at, now, before,
      {static_cast<const std::byte*>(memory), static_cast<int64_t>(bytes), writes != 0});
}
void tessera_emulated_gpu_approximation(int units) {
  const std::lock_guard lock(machine().mutex);
  tessera::simt::set_approximation(units);
}

#pragma GCC visibility pop
}  // extern "C"
