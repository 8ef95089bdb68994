#pragma once
#include <cstdint>

namespace tessera {

// Calls of operator new so far, on all threads: tests compare two readings. A program that links
// this replaces the global operators.
int64_t allocation_count();

}  // namespace tessera
