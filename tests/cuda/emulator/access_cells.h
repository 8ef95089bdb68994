#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "access_checks.h"

// What is remembered of memory: for each granule of 4, 2 or 1 bytes who wrote and read it last.
namespace tessera::simt {

constexpr size_t kPageBytes = 256;
using PageBits = std::array<uint64_t, kPageBytes / 64>;

enum Problem : unsigned {
  kReadAfterWrite = 1,
  kWriteAfterWrite = 2,
  kWriteAfterRead = 4,
  kReadsUnwritten = 8,
  kTouchesPending = 16,
  kTouchesGuarded = 32,
  kNoMoreProblems = 64
};

constexpr uint8_t kWritten = 1, kGuarded = 2, kAtomicWriter = 4, kReadByBlocks = 8;

// Who touches something, and when: the number of barriers of the block and of the warp before it.
struct Moment {
  uint32_t epoch;  // the block, for shared memory, or the launch
  uint32_t block;  // from 1, like thread
  uint16_t thread, barriers, warp_barriers;
};

struct Cell {
  uint32_t epoch = 0, write_block = 0, read_block = 0;
  uint16_t writer = 0, write_barriers = 0, write_warp = 0;
  uint16_t readers[2] = {0, 0}, read_barriers[2] = {0, 0}, read_warp[2] = {0, 0};
  uint16_t pending = 0;  // the thread whose asynchronous copy writes it
  uint8_t flags = 0;

  // Forgets who touched it when another launch begins, and all of it when another block does whose
  // shared memory it is.
  void begin(uint32_t now, bool shared) {
    if (epoch == now) return;
    const uint8_t kept = shared ? 0 : flags & (kWritten | kGuarded);
    *this = Cell{};
    epoch = now;
    flags = kept;
  }

  // The problems of this access.
  unsigned touch(const Moment& now, Access access) {
    unsigned problems = 0;
    if (pending) problems |= kTouchesPending;
    if (flags & kGuarded) problems |= kTouchesGuarded;
    if (access != Access::kWrite && !(flags & kWritten)) problems |= kReadsUnwritten;
    const bool both_atomic = access == Access::kAtomic && (flags & kAtomicWriter);
    if (!both_atomic && unordered(now, write_block, writer, write_barriers, write_warp)) {
      problems |= access == Access::kRead ? kReadAfterWrite : kWriteAfterWrite;
    }
    if (access == Access::kRead) {
      add_reader(now);
      return problems;
    }
    bool read_by_other = flags & kReadByBlocks;
    for (int n = 0; n < 2; ++n) {
      read_by_other =
          read_by_other || unordered(now, read_block, readers[n], read_barriers[n], read_warp[n]);
    }
    if (read_by_other) problems |= kWriteAfterRead;
    write_block = now.block;
    writer = now.thread;
    write_barriers = now.barriers;
    write_warp = now.warp_barriers;
    readers[0] = readers[1] = 0;
    read_block = 0;
    flags = static_cast<uint8_t>((flags & kGuarded) | kWritten |
                                 (access == Access::kAtomic ? kAtomicWriter : 0));
    return problems;
  }

 private:
  static bool unordered(const Moment& now, uint32_t block, uint16_t thread, uint16_t barriers,
                        uint16_t warp_barriers) {
    if (thread == 0) return false;
    if (block != now.block) return true;
    if (thread == now.thread || barriers < now.barriers) return false;
    const bool same_warp = (thread - 1) / 32 == (now.thread - 1) / 32;
    return !(same_warp && warp_barriers < now.warp_barriers);
  }
  // Two are enough to find any other thread's write, if they are of two warps where there are two.
  void add_reader(const Moment& now) {
    if (read_block && read_block != now.block) {
      flags |= kReadByBlocks;
      readers[0] = readers[1] = 0;
    }
    read_block = now.block;
    int n = 0;
    if (readers[0] && readers[0] != now.thread && read_barriers[0] == now.barriers) {
      const int warp = (now.thread - 1) / 32;
      const bool keeps_other_warp =
          readers[1] && readers[1] != now.thread && read_barriers[1] == now.barriers &&
          (readers[1] - 1) / 32 != (readers[0] - 1) / 32 && (readers[0] - 1) / 32 == warp;
      n = keeps_other_warp ? 0 : 1;
    }
    readers[n] = now.thread;
    read_barriers[n] = now.barriers;
    read_warp[n] = now.warp_barriers;
  }
};

struct PageCells {
  size_t granule = 4, shift = 2;  // bytes, and their logarithm
  std::vector<Cell> cells = std::vector<Cell>(kPageBytes / 4);
  uint32_t launch = 0;
  PageBits read{}, written{};  // by the launch, a bit a byte

  void begin_launch(uint32_t serial) {
    launch = serial;
    read = written = {};
  }
  // Makes granules so small that [first, end) consists of whole ones.
  void refine(size_t first, size_t end) {
    while ((first | end) & (granule - 1)) {
      std::vector<Cell> halves;
      for (const Cell& cell : cells) halves.insert(halves.end(), 2, cell);
      cells = std::move(halves);
      granule /= 2;
      shift--;
    }
  }
};

inline void set_bits(PageBits& bits, size_t first, size_t end) {
  while (first < end) {
    const size_t to = end < (first / 64 + 1) * 64 ? end : (first / 64 + 1) * 64;
    const uint64_t ones = to - first == 64 ? ~uint64_t{0} : (uint64_t{1} << (to - first)) - 1;
    bits[first / 64] |= ones << first % 64;
    first = to;
  }
}
template <class Each>
void each_run_of_bits(const PageBits& bits, Each each) {
  const auto has = [&](size_t n) { return bits[n / 64] >> n % 64 & 1; };
  for (size_t n = 0; n < kPageBytes;) {
    if (n % 64 == 0 && bits[n / 64] == 0) {
      n += 64;
      continue;
    }
    if (!has(n)) {
      ++n;
      continue;
    }
    const size_t from = n;
    while (n < kPageBytes && has(n)) ++n;
    each(from, n);
  }
}

// A buffer. Pages have cells from when a kernel touches them.
struct Region {
  struct Page {
    PageCells* cells;
    uint8_t flags;  // of the whole page, while it has no cells
  };
  const std::byte* begin;
  size_t bytes;
  std::string name;
  bool shared, freed = false;

  Region(const std::byte* begin_, size_t bytes_, std::string name_, bool shared_);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  PageCells& cells(size_t number);
  void set_flag(size_t offset, size_t count, uint8_t flag, bool on);
  bool all_written(size_t offset, size_t count);

 private:
  Page* pages_;
  size_t mapped_;
};

}  // namespace tessera::simt
