#pragma once
#include <cstddef>
#include <cstdint>

#include "torch_files/pickle.h"

// What the values of a Pickle refer to. Included by pickle*.cpp only.
namespace tessera {

// A tuple, list, set or dict; a reference, which has one item.
struct alignas(16) Pickle::Sequence {
  uint32_t size = 0, capacity = 0;
  PickleValue* items = nullptr;
};

// A text, bytes, or an integer as bytes in two's complement, the least first.
struct alignas(16) Pickle::Characters {
  size_t size = 0;
  const char* data = nullptr;
};

struct alignas(16) Pickle::Float {
  double value = 0;
};

struct alignas(16) Pickle::Object : PickleObject {};

}  // namespace tessera
