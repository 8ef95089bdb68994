// The memory of the emulated GPUs, pinned memory, and putting all back to the beginning.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "access_checks.h"
#include "cupti_records.h"
#include "findings.h"
#include "machine.h"
#include "rank_files.h"
#include "shared_memory.h"

namespace tessera::emulated_gpu {
namespace {

constexpr int64_t kPage = 4096, kPoisoned = int64_t{256} << 20;

int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

void Machine::reset(uint64_t new_seed, int device_count, int64_t memory_bytes) {
  for (auto& [begin, memory] : memories) munmap(memory.begin, static_cast<size_t>(memory.mapped));
  refuses_peers = std::getenv("TESSERA_EMULATED_GPU_NO_PEERS") != nullptr;
  memories.clear();
  simt::forget_memory();
  simt::set_approximation(0);
  clear_findings();
  remove_meeting_places();
  reset_cupti();
  seed = new_seed;
  random.seed(new_seed);
  ordering = {};
  host.clear();
  streams.clear();
  events.clear();
  captures.clear();
  executables.clear();
  functions.clear();
  modules.clear();
  unfinished.clear();
  busy.clear();
  waits = left_out_wait = 0;
  allocations = launches = graph_launches = fail_allocation = fail_launch = 0;
  memory_limit = memory_bytes;
  initialized = false;
  devices.assign(static_cast<size_t>(device_count), {});
  add_stream(0, false, "the host");
  for (int n = 0; n < device_count; ++n) {
    devices[static_cast<size_t>(n)].default_stream = add_stream(n, true, "the default stream");
  }
  meets_processes = nccl_lags = false;
  refused_registration.clear();
  exchanges = registered_exchanges = fences = left_out_fence = 0;
  sums_in_rings = std::getenv("TESSERA_EMULATED_GPU_RINGS") != nullptr;
  current_device() = -1;
  changed.notify_all();
}

Memory* Machine::memory_at(const void* at) {
  auto it = memories.upper_bound(static_cast<const std::byte*>(at));
  if (it == memories.begin()) return nullptr;
  Memory& memory = std::prev(it)->second;
  return static_cast<const std::byte*>(at) < memory.begin + memory.bytes ? &memory : nullptr;
}

Memory* Machine::memory_of(const void* at, int64_t bytes, const std::string& call) {
  Memory* memory = memory_at(at);
  if (!memory) {
    found(call + ": the address is in no memory of the device");
    return nullptr;
  }
  if (memory->freed) {
    found(call + ": uses " + memory->name + ", which is freed");
    return nullptr;
  }
  if (static_cast<const std::byte*>(at) + bytes > memory->begin + memory->bytes) {
    found(call + ": past the end of " + memory->name);
    return nullptr;
  }
  return memory;
}

std::byte* Machine::allocate(int64_t bytes, int device, const std::string& name) {
  Memory memory;
  memory.bytes = bytes;
  memory.device = device;
  memory.mapped = whole_pages(bytes) + kPage;
  void* place = mmap(nullptr, static_cast<size_t>(memory.mapped), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  memory.begin = static_cast<std::byte*>(place);
  memory.name =
      name + " " + std::to_string(memories.size()) + " of " + std::to_string(bytes) + " bytes";
  // As floating-point numbers these are not a number: who reads them gets wrong results.
  std::memset(place, 0xff, static_cast<size_t>(std::min(bytes, kPoisoned)));
  mprotect(memory.begin + memory.mapped - kPage, kPage, PROT_NONE);
  // What the host writes to pinned memory is not seen.
  simt::add_memory(memory.begin, static_cast<size_t>(bytes), memory.name, device < 0);
  if (device >= 0) devices[static_cast<size_t>(device)].in_use += bytes;
  std::byte* begin = memory.begin;
  memories[begin] = std::move(memory);
  return begin;
}

void Machine::retire(Memory& memory, const char* does) {
  // Work that uses it must be known to be done. What that is shows when it has run.
  while (!busy.empty()) {
    const int64_t before = executed;
    run_some(1);
    if (executed == before) break;
  }
  if (const Toucher* user = ordering.unordered(memory, host)) {
    found("memory: " + memory.name + " is " + does + " while in use by " + ordering.who(*user));
  }
  memory.freed = true;
  memory.pieces.clear();
  simt::free_memory(memory.begin);
  mmap(memory.begin, static_cast<size_t>(memory.mapped), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void Machine::release(Memory& memory) {
  if (memory.registered > 0) {
    found("memory: " + memory.name + " is freed while it is registered with NCCL");
  }
  const auto has_it = [&](const Captured& graph) {
    return std::ranges::any_of(graph.exchanged,
                               [&](const std::byte* at) { return memory_at(at) == &memory; });
  };
  if (any_graph(has_it)) {
    found("memory: " + memory.name + " is freed while a graph has exchanges of it");
  }
  if (memory.shared && memory.shared->opened() > 0) {
    found("memory: " + memory.name + " is freed while another process has it open");
  }
  if (memory.device >= 0) devices[static_cast<size_t>(memory.device)].in_use -= memory.bytes;
  retire(memory, "freed");
  if (memory.shared) memory.shared->end();
}

}  // namespace tessera::emulated_gpu
