#include "tests/backends/cpu/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace tessera {
namespace {
std::atomic<int64_t> count = 0;
}  // namespace

int64_t allocation_count() { return count; }

}  // namespace tessera

// Not inlined: g++ would take free() for the wrong partner of operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++tessera::count;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
// std::stable_sort asks this one for its buffer.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++tessera::count;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
