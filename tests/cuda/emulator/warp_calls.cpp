// What the lanes of a warp do together: shuffles, votes, ldmatrix and mma; and each lane's
// asynchronous copies and atomics.
#include "access_checks.h"
#include "block_runner.h"

namespace tessera::simt {
namespace {

void call_warp(WarpCall call, uint32_t members, Place place) {
  Fiber& f = *running.fiber;
  f.call = call;
  f.members = members;
  f.place = place;
  f.waits = Waits::kWarp;
  if (!(members >> lane() & 1u)) {
    kernel_finding("warp: a lane is not in the mask that it gives", text_of(place));
  }
  yield();
}

// Runs `body` as if the lane did it, so that what it touches is put down to it.
template <class Body>
void as_lane(Fiber* lane, Body body) {
  Fiber* before = running.fiber;
  running.fiber = lane;
  body();
  running.fiber = before;
}

void do_shuffle(Fiber* const (&lanes)[32], uint32_t group) {
  uint64_t results[32] = {};
  for (uint32_t rest = group; rest; rest &= rest - 1) {
    const int n = std::countr_zero(rest);
    const Fiber& f = *lanes[n];
    if (f.source_lane < 0 || f.source_lane > 31 || !(group >> f.source_lane & 1u)) {
      as_lane(lanes[n], [&] {
        kernel_finding("shuffle: takes a value from a lane that is not there", text_of(f.place));
      });
      results[n] = 0x7fc0dead7fc0dead;
    } else {
      results[n] = lanes[f.source_lane]->value;
    }
  }
  for (uint32_t rest = group; rest; rest &= rest - 1) {
    const int n = std::countr_zero(rest);
    lanes[n]->value = results[n];
  }
}

void do_vote(Fiber* const (&lanes)[32], uint32_t group) {
  uint32_t ballot = 0;
  for (uint32_t rest = group; rest; rest &= rest - 1) {
    const int n = std::countr_zero(rest);
    if (lanes[n]->value) ballot |= 1u << n;
  }
  for (uint32_t rest = group; rest; rest &= rest - 1) {
    Fiber& f = *lanes[std::countr_zero(rest)];
    if (f.call == WarpCall::kBallot) f.value = ballot;
    if (f.call == WarpCall::kAny) f.value = ballot != 0;
    if (f.call == WarpCall::kAll) f.value = ballot == group;
  }
}

bool whole_warp(Fiber* const (&lanes)[32], uint32_t group) {
  if (group == 0xffffffffu) return true;
  const Fiber& f = *lanes[std::countr_zero(group)];
  kernel_finding("warp: a matrix instruction without all 32 lanes", text_of(f.place));
  running.failed = true;
  return false;
}

// PTX, ldmatrix .m8n8 .x4 .b16: lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i;
// register i of lane l is of matrix i: elements 2 (l % 4) and the next of row l / 4, or,
// transposed, of column l / 4.
void do_load_matrix(Fiber* const (&lanes)[32], uint32_t group) {
  if (!whole_warp(lanes, group)) return;
  for (int n = 0; n < 32; ++n) {
    if (reinterpret_cast<uintptr_t>(lanes[n]->row) % 16 != 0) {
      as_lane(lanes[n], [&] {
        kernel_finding("ldmatrix: the address of a row is not a multiple of 16 bytes",
                       text_of(lanes[n]->place));
      });
    }
  }
  for (int n = 0; n < 32; ++n) {
    as_lane(lanes[n], [&] {
      const Fiber& f = *lanes[n];
      for (int matrix = 0; matrix < 4; ++matrix) {
        uint16_t halves[2];
        for (int k = 0; k < 2; ++k) {
          const int row = f.transposed ? n % 4 * 2 + k : n / 4;
          const int column = f.transposed ? n / 4 : n % 4 * 2 + k;
          const auto* at = static_cast<const uint16_t*>(lanes[matrix * 8 + row]->row) + column;
          touch(at, 2, Access::kRead, nullptr);
          if (running.failed) return;
          std::memcpy(&halves[k], at, 2);
        }
        f.matrix[matrix] = halves[0] | static_cast<uint32_t>(halves[1]) << 16;
      }
    });
    if (running.failed) return;
  }
}

// PTX, mma .m16n8k16 .row.col of bf16: with g = lane / 4 and t = lane % 4, register r of A holds
// row g + 8 (r % 2), columns 2 t + 8 (r / 2) and the next; register r of B rows 2 t + 8 r and the
// next, column g; register r of C and D row g + 8 (r / 2), column 2 t + r % 2. A device does not
// say how it rounds inside; here the products are summed exactly enough (f64) and rounded once, or
// off by some units where approximations are.
void do_multiply_add(Fiber* const (&lanes)[32], uint32_t group) {
  if (!whole_warp(lanes, group)) return;
  const auto half = [](uint32_t v, int k) {
    return static_cast<double>(std::bit_cast<float>(k ? v & 0xffff0000u : v << 16));
  };
  double a[16][16], b[8][16];
  for (int n = 0; n < 32; ++n) {
    const MatrixOperands& o = lanes[n]->operands;
    for (int k = 0; k < 2; ++k) {
      for (int r = 0; r < 4; ++r) a[n / 4 + r % 2 * 8][n % 4 * 2 + r / 2 * 8 + k] = half(o.a[r], k);
      for (int r = 0; r < 2; ++r) b[n / 4][n % 4 * 2 + r * 8 + k] = half(o.b[r], k);
    }
  }
  for (int n = 0; n < 32; ++n) {
    for (int r = 0; r < 4; ++r) {
      const double *row = a[n / 4 + r / 2 * 8], *column = b[n % 4 * 2 + r % 2];
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
      lanes[n]->operands.d[r] = approximate(sum + lanes[n]->operands.d[r]);
    }
  }
}

template <class T, class Change>
inline __attribute__((always_inline)) T change(T* p, Change value) {
  touch(p, sizeof(T), Access::kAtomic, __builtin_return_address(0));
  const T before = *p;
  *p = value(before);
  return before;
}

}  // namespace

void do_warp_call(Fiber* const (&lanes)[32], uint32_t group) {
  Fiber* before = running.fiber;
  running.fiber = nullptr;
  running.answers_warp = true;
  switch (lanes[std::countr_zero(group)]->call) {
    case WarpCall::kBarrier: break;
    case WarpCall::kShuffle: do_shuffle(lanes, group); break;
    case WarpCall::kBallot:
    case WarpCall::kAny:
    case WarpCall::kAll: do_vote(lanes, group); break;
    case WarpCall::kLoadMatrix: do_load_matrix(lanes, group); break;
    case WarpCall::kMultiplyAdd: do_multiply_add(lanes, group); break;
  }
  running.answers_warp = false;
  running.fiber = before;
}

void warp_barrier(uint32_t members, Place place) { call_warp(WarpCall::kBarrier, members, place); }
uint64_t shuffle(uint32_t members, uint64_t bits, int source_lane, Place place) {
  Fiber& f = *running.fiber;
  f.value = bits;
  f.source_lane = source_lane;
  call_warp(WarpCall::kShuffle, members, place);
  return f.value;
}
uint32_t vote(uint32_t members, bool predicate, Vote kind, Place place) {
  Fiber& f = *running.fiber;
  f.value = predicate;
  const WarpCall call = kind == Vote::kBallot ? WarpCall::kBallot
                        : kind == Vote::kAny  ? WarpCall::kAny
                                              : WarpCall::kAll;
  call_warp(call, members, place);
  return static_cast<uint32_t>(f.value);
}
void load_matrix(uint32_t (&r)[4], const void* row, bool transposed, Place place) {
  Fiber& f = *running.fiber;
  f.row = row;
  f.transposed = transposed;
  f.matrix = r;
  call_warp(WarpCall::kLoadMatrix, 0xffffffffu, place);
}
void multiply_add_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        Place place) {
  const uint32_t b[2] = {b0, b1};
  running.fiber->operands = {d, a, b};
  call_warp(WarpCall::kMultiplyAdd, 0xffffffffu, place);
}

void copy_async16(void* shared, const void* global) {
  const void* place = __builtin_return_address(0);
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0) {
    kernel_finding("cp.async: an address is not a multiple of 16 bytes", "a copy");
  }
  touch(global, 16, Access::kRead, place);
  begin_asynchronous(shared, 16, place);
  Fiber& f = *running.fiber;
  f.copies.push_back({shared, global});
  f.uncommitted++;
}
void copy_async_commit() {
  Fiber& f = *running.fiber;
  f.group_sizes.push_back(f.uncommitted);
  f.uncommitted = 0;
}
void copy_async_wait(int groups) {
  Fiber& f = *running.fiber;
  size_t done = 0, count = 0;
  while (f.group_sizes.size() - done > static_cast<size_t>(groups)) count += f.group_sizes[done++];
  for (size_t n = 0; n < count; ++n) {
    end_asynchronous(f.copies[n].to, 16);
    std::memcpy(f.copies[n].to, f.copies[n].from, 16);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<ptrdiff_t>(count));
  f.group_sizes.erase(f.group_sizes.begin(), f.group_sizes.begin() + static_cast<ptrdiff_t>(done));
}
void memory_fence() {}

}  // namespace tessera::simt

int atomicAdd(int* p, int v) {
  return tessera::simt::change(p, [v](int before) {
    return static_cast<int>(static_cast<unsigned>(before) + static_cast<unsigned>(v));
  });
}
unsigned atomicAdd(unsigned* p, unsigned v) {
  return tessera::simt::change(p, [v](unsigned before) { return before + v; });
}
unsigned long long atomicAdd(unsigned long long* p, unsigned long long v) {
  return tessera::simt::change(p, [v](unsigned long long before) { return before + v; });
}
int atomicMax(int* p, int v) {
  return tessera::simt::change(p, [v](int before) { return max(before, v); });
}
unsigned atomicMax(unsigned* p, unsigned v) {
  return tessera::simt::change(p, [v](unsigned before) { return max(before, v); });
}
int atomicMin(int* p, int v) {
  return tessera::simt::change(p, [v](int before) { return min(before, v); });
}
unsigned atomicMin(unsigned* p, unsigned v) {
  return tessera::simt::change(p, [v](unsigned before) { return min(before, v); });
}
int atomicOr(int* p, int v) {
  return tessera::simt::change(p, [v](int before) { return before | v; });
}
unsigned atomicOr(unsigned* p, unsigned v) {
  return tessera::simt::change(p, [v](unsigned before) { return before | v; });
}
