#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simt.h"

// Runs kernels: one block at a time, each thread a fiber, in an order drawn from a seed. Not safe
// to be called from several threads at once.
namespace tessera::simt {

// Null if there is none.
const KernelEntry* find_kernel(std::string_view name);

struct Shape {
  unsigned x = 1, y = 1, z = 1;
};
struct Launch {
  const KernelEntry* kernel = nullptr;
  Shape grid, block;
  unsigned shared_bytes = 0;
  void** parameters = nullptr;  // lie within the next two
  const std::byte* parameter_memory = nullptr;
  size_t parameter_bytes = 0;
  uint64_t seed = 0;  // 0: in order
};
// False if it was ended because it could not go on, which is a finding: an access to memory that is
// not there, or threads that wait for each other for ever.
bool run(const Launch& launch);

// How far results of approximate() may be off, in units of the last place; 0 at first.
void set_approximation(int units);

enum class Waits : uint8_t { kNot, kBlock, kWarp };
enum class WarpCall : uint8_t {
  kBarrier,
  kShuffle,
  kBallot,
  kAny,
  kAll,
  kLoadMatrix,
  kMultiplyAdd
};

struct MatrixOperands {  // of one lane
  float* d;
  const uint32_t *a, *b;
};
struct Fiber {
  uint3 thread{};
  int index = 0;
  bool ended = false;
  Waits waits = Waits::kNot;
  Place place;
  uint16_t barriers = 0, warp_barriers = 0;
  // Of a call that a warp makes together.
  WarpCall call{};
  uint32_t members = 0;
  uint64_t value = 0;  // given and got
  int source_lane = 0;
  const void* row = nullptr;
  bool transposed = false;
  uint32_t* matrix = nullptr;
  MatrixOperands operands{};
  // Asynchronous copies: those committed, in groups, then those that are not.
  struct Copy {
    void* to;
    const void* from;
  };
  std::vector<Copy> copies;
  std::vector<size_t> group_sizes;
  size_t uncommitted = 0;

  std::byte *stack_begin = nullptr, *stack_end = nullptr;
  void* stack_pointer = nullptr;
};

// What runs now.
struct Running {
  Launch launch;
  uint3 block{};
  Fiber* fiber = nullptr;
  bool failed = false;
  bool answers_warp = false;  // not in a fiber, but in what does a call for a warp
};
extern Running running;

// The kernel cannot go on: does not return to a fiber; what answers a warp looks at `failed`.
void stop_kernel();
// The current fiber waits.
void yield();
// Says what is wrong, with the kernel's name in front and the thread's place behind.
void kernel_finding(const std::string& rule, const std::string& place);
std::string text_of(Place place);

// All that a warp needs for a call is there: does it (warp_calls.cpp). `lanes`: null where no
// thread.
void do_warp_call(Fiber* const (&lanes)[32], uint32_t group);

}  // namespace tessera::simt
