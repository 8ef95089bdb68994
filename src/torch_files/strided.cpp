#include "torch_files/strided.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

// One run along the innermost dim.
void copy_run(const std::byte* from, int64_t step, int64_t element_bytes, int64_t count,
              std::byte* to) {
  if (step == element_bytes) {
    std::memcpy(to, from, static_cast<size_t>(count * element_bytes));
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * element_bytes, from + i * step, static_cast<size_t>(element_bytes));
}

}  // namespace

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    strides[i - 1] = stride;
    stride *= std::max<int64_t>(shape[i - 1], 1);
  }
  return strides;
}

bool is_contiguous(const Shape& shape, const Shape& strides) {
  if (std::ranges::find(shape, 0) != shape.end()) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    if (shape[i - 1] != 1 && strides[i - 1] != expected) return false;
    expected *= shape[i - 1];
  }
  return true;
}

std::optional<int64_t> storage_extent(const Shape& shape, const Shape& strides,
                                      int64_t element_bytes) {
  TESSERA_CHECK(shape.size() == strides.size());
  int64_t last = 0, elements = 1;
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) return {};
    empty = empty || shape[i] == 0;
    int64_t size = std::max<int64_t>(shape[i], 1), reach;
    if (__builtin_mul_overflow(elements, size, &elements) ||
        __builtin_mul_overflow(size - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return {};
  }
  int64_t extent, bytes;
  if (__builtin_add_overflow(last, 1, &extent) ||
      __builtin_mul_overflow(extent, element_bytes, &bytes) ||
      __builtin_mul_overflow(elements, element_bytes, &bytes))
    return {};
  return empty ? 0 : extent;
}

void copy_strided(const std::byte* data, const Shape& shape, const Shape& strides,
                  int64_t element_bytes, int64_t first, std::span<std::byte> out) {
  const int64_t count = static_cast<int64_t>(out.size()) / element_bytes;
  if (count == 0) return;
  if (is_contiguous(shape, strides)) {
    std::memcpy(out.data(), data + first * element_bytes, out.size());
    return;
  }
  const size_t inner = shape.size() - 1;  // a tensor that is not contiguous has a dim
  Shape index(shape.size());
  int64_t rest = first;
  for (size_t i = shape.size(); i > 0; --i) {
    index[i - 1] = rest % shape[i - 1];
    rest /= shape[i - 1];
  }
  for (int64_t done = 0; done < count;) {
    int64_t element = 0;
    for (size_t i = 0; i < shape.size(); ++i) element += index[i] * strides[i];
    const int64_t run = std::min(shape[inner] - index[inner], count - done);
    copy_run(data + element * element_bytes, strides[inner] * element_bytes, element_bytes, run,
             out.data() + done * element_bytes);
    done += run;
    index[inner] = 0;
    for (size_t i = inner; i > 0; --i) {
      if (++index[i - 1] < shape[i - 1]) break;
      index[i - 1] = 0;
    }
  }
}

}  // namespace tessera
