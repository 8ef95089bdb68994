#include "block_runner.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "access_checks.h"
#include "findings.h"

// Saves what a called function has to keep on its stack and goes on on another one.
extern "C" void tessera_simt_switch(void** save, void* to);
asm(R"(
.text
.globl tessera_simt_switch
.hidden tessera_simt_switch
.type tessera_simt_switch, @function
tessera_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_simt_switch, .-tessera_simt_switch
)");

namespace tessera::simt {

Running running;

namespace {

constexpr size_t kStack = 128 << 10, kMaxThreads = 1024, kMaxShared = 227 << 10;

std::map<std::string, KernelEntry, std::less<>>& kernels() {
  static std::map<std::string, KernelEntry, std::less<>> map;
  return map;
}

std::vector<Fiber> fibers;
void* scheduler = nullptr;
alignas(1024) std::byte dynamic_memory[kMaxShared];
std::mt19937_64 random_numbers;
int approximation = 0;

void fiber_entry() {
  running.launch.kernel->call(running.launch.parameters);
  running.fiber->ended = true;
  yield();
  std::abort();
}

void make_fibers() {
  if (!fibers.empty()) return;
  fibers.resize(kMaxThreads);
  auto* memory = static_cast<std::byte*>(mmap(nullptr, kStack * kMaxThreads, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED) std::abort();
  for (size_t n = 0; n < kMaxThreads; ++n) {
    fibers[n].stack_begin = memory + n * kStack;
    // Not at the same distance each: they would share few lines of the caches.
    fibers[n].stack_end = fibers[n].stack_begin + kStack - n * 320 % (32 << 10);
    mprotect(fibers[n].stack_begin, 4096, PROT_NONE);
  }
}

void start_fiber(Fiber& f, int index, const Shape& block) {
  const auto i = static_cast<unsigned>(index);
  f.thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  f.index = index;
  f.ended = false;
  f.waits = Waits::kNot;
  f.barriers = f.warp_barriers = 0;
  f.copies.clear();
  f.group_sizes.clear();
  f.uncommitted = 0;
  auto* top = reinterpret_cast<void**>(f.stack_end);
  *--top = nullptr;  // keeps the stack aligned as a call leaves it
  *--top = reinterpret_cast<void*>(&fiber_entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  f.stack_pointer = top;
}

// One warp of the block that runs.
class Warp {
 public:
  Warp(int first, int count) {
    for (int n = 0; n < count; ++n) lanes_[n] = &fibers[static_cast<size_t>(first + n)];
  }
  // Runs its threads until all wait; true if one of them got further.
  bool run(bool in_order) {
    bool any = false;
    for (;;) {
      const unsigned start = in_order ? 0 : static_cast<unsigned>(random_numbers() % 32);
      const unsigned step = in_order ? 1 : static_cast<unsigned>(random_numbers() % 16) * 2 + 1;
      bool ran = false;
      for (unsigned n = 0; n < 32; ++n) {
        Fiber* f = lanes_[(start + n * step) % 32];
        if (!f || f->ended || f->waits != Waits::kNot) continue;
        ran = true;
        running.fiber = f;
        tessera_simt_switch(&scheduler, f->stack_pointer);
        if (running.failed) return true;
      }
      any = any || ran;
      if (!answer_calls()) return any;
      if (running.failed) return true;
      any = true;
      // Others may come in between.
      if (!in_order && random_numbers() % 4 == 0) return true;
    }
  }

 private:
  // Does the calls for which all lanes have come; true if there was one.
  bool answer_calls() {
    uint32_t waiting = 0, alive = 0;
    for (int n = 0; n < 32; ++n) {
      if (!lanes_[n] || lanes_[n]->ended) continue;
      alive |= 1u << n;
      if (lanes_[n]->waits == Waits::kWarp) waiting |= 1u << n;
    }
    bool answered = false;
    while (waiting) {
      const Fiber& first = *lanes_[std::countr_zero(waiting)];
      const uint32_t needed = (first.members & alive) | (1u << std::countr_zero(waiting));
      bool all = true;
      for (uint32_t rest = needed; rest; rest &= rest - 1) {
        const Fiber& f = *lanes_[std::countr_zero(rest)];
        all = all && f.waits == Waits::kWarp && f.members == first.members && f.call == first.call;
      }
      if (all) {
        do_warp_call(lanes_, needed);
        if (running.failed) return true;
        for (uint32_t rest = needed; rest; rest &= rest - 1) {
          Fiber& f = *lanes_[std::countr_zero(rest)];
          f.waits = Waits::kNot;
          if (f.call == WarpCall::kBarrier) f.warp_barriers++;
        }
        answered = true;
      }
      waiting &= all ? ~needed : waiting - 1;
    }
    return answered;
  }

  Fiber* lanes_[32] = {};
};

// Nobody can go on: lets all pass the barrier, or says why they cannot.
void pass_barrier(int threads) {
  const Fiber* first = nullptr;
  const Fiber* in_warp = nullptr;
  bool ended = false;
  for (int n = 0; n < threads; ++n) {
    const Fiber& f = fibers[static_cast<size_t>(n)];
    if (f.ended) {
      ended = true;
      continue;
    }
    if (f.waits == Waits::kWarp) {
      if (!in_warp) in_warp = &f;
      continue;
    }
    if (!first) first = &f;
    if (first->place.line != f.place.line || std::strcmp(first->place.file, f.place.file) != 0) {
      kernel_finding("barrier: threads of a block wait at different ones",
                     text_of(first->place) + " and " + text_of(f.place));
    }
  }
  if (in_warp) {
    kernel_finding("warp: lanes wait for others of their mask that do not come",
                   text_of(in_warp->place) + (first ? " and " + text_of(first->place) : ""));
    running.failed = true;
    return;
  }
  if (ended) kernel_finding("barrier: some threads of the block have ended", text_of(first->place));
  for (int n = 0; n < threads; ++n) {
    Fiber& f = fibers[static_cast<size_t>(n)];
    f.waits = Waits::kNot;
    f.barriers++;
  }
}

void run_block(int threads, bool in_order) {
  std::vector<Warp> warps;
  for (int n = 0; n < threads; ++n) {
    start_fiber(fibers[static_cast<size_t>(n)], n, running.launch.block);
    if (n % 32 == 0) warps.emplace_back(n, std::min(32, threads - n));
  }
  std::vector<size_t> order(warps.size());
  for (size_t n = 0; n < order.size(); ++n) order[n] = n;
  for (;;) {
    if (!in_order) std::shuffle(order.begin(), order.end(), random_numbers);
    bool progress = false;
    for (size_t n : order) {
      progress = warps[n].run(in_order) || progress;
      if (running.failed) return;
    }
    if (progress) continue;
    const bool all_ended = std::all_of(fibers.begin(), fibers.begin() + threads,
                                       [](const Fiber& f) { return f.ended; });
    if (all_ended) return;
    pass_barrier(threads);
    if (running.failed) return;
  }
}

}  // namespace

bool add_kernel(const KernelEntry& kernel) {
  kernels()[kernel.name] = kernel;
  return true;
}
const KernelEntry* find_kernel(std::string_view name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

bool run(const Launch& launch) {
  make_fibers();
  running.launch = launch;
  running.failed = false;
  random_numbers.seed(launch.seed);
  begin_launch(launch.parameter_memory, launch.parameter_bytes);
  const Shape &grid = launch.grid, &block = launch.block;
  const auto threads = static_cast<int>(block.x * block.y * block.z);
  std::vector<uint32_t> blocks(static_cast<size_t>(grid.x) * grid.y * grid.z);
  for (uint32_t n = 0; n < blocks.size(); ++n) blocks[n] = n;
  if (launch.seed) std::shuffle(blocks.begin(), blocks.end(), random_numbers);
  for (uint32_t number : blocks) {
    running.block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    begin_block(number, dynamic_memory, launch.shared_bytes);
    run_block(threads, launch.seed == 0);
    if (running.failed) break;
  }
  running.fiber = nullptr;
  return !running.failed;
}

void set_approximation(int units) { approximation = units; }
float approximate(double exact) {
  auto value = static_cast<float>(exact);
  if (!approximation || value == 0 || !std::isfinite(value)) return value;
  const auto span = static_cast<unsigned>(2 * approximation + 1);
  int steps = static_cast<int>(random_numbers() % span) - approximation;
  for (; steps; steps += steps > 0 ? -1 : 1) {
    value = nextafterf(value, steps > 0 ? INFINITY : -INFINITY);
  }
  return value;
}

void yield() { tessera_simt_switch(&running.fiber->stack_pointer, scheduler); }
void stop_kernel() {
  running.failed = true;
  if (!running.answers_warp) yield();
}

std::string text_of(Place place) {
  const char* name = std::strrchr(place.file, '/');
  return std::string(name ? name + 1 : place.file) + ":" + std::to_string(place.line);
}
void kernel_finding(const std::string& rule, const std::string& place) {
  const std::string kernel = running.launch.kernel->name;
  std::string detail;
  if (const Fiber* f = running.fiber) {
    const auto three = [](uint3 v) {
      return std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z);
    };
    detail = "first by thread " + three(f->thread) + " of block " + three(running.block);
  }
  emulated_gpu::found("kernel " + kernel + ": " + rule + " at " + place, detail);
}

uint3 thread_index() { return running.fiber->thread; }
uint3 block_index() { return running.block; }
uint3 block_shape() {
  const Shape& s = running.launch.block;
  return {s.x, s.y, s.z};
}
uint3 grid_shape() {
  const Shape& s = running.launch.grid;
  return {s.x, s.y, s.z};
}
int lane() { return running.fiber->index % 32; }
void* dynamic_shared() { return dynamic_memory; }

void block_barrier(Place place) {
  Fiber& f = *running.fiber;
  f.waits = Waits::kBlock;
  f.place = place;
  yield();
}

}  // namespace tessera::simt
