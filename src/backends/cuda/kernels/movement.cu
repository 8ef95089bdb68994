// Primitives that make and move elements: 256 threads a block.
#include "random.cuh"

namespace tessera::cuda {
namespace {

__device__ __forceinline__ int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace

// One element a thread, of so many bytes: whole vectors of a tensor where its rows consist of them.
#define TESSERA_COPY_BOX(bytes, T)                                                          \
  TESSERA_KERNEL(256, copy_box_##bytes, const T* x, T* y, BoxCopy box) {                    \
    const int64_t i = thread_number();                                                      \
    if (i >= box.count) return;                                                             \
    y[box.to_begin + offset_of(box.to, i)] = x[box.from_begin + offset_of(box.from, i)];    \
  }
TESSERA_COPY_BOX(1, uint8_t)
TESSERA_COPY_BOX(2, uint16_t)
TESSERA_COPY_BOX(4, uint32_t)
TESSERA_COPY_BOX(8, uint64_t)
TESSERA_COPY_BOX(16, uint4)

// The elements of a box set to one number.
#define TESSERA_FILL_BOX(bytes, T)                                              \
  TESSERA_KERNEL(256, fill_box_##bytes, T* y, BoxCopy box, uint64_t bits) {     \
    const int64_t i = thread_number();                                          \
    if (i >= box.count) return;                                                 \
    y[box.to_begin + offset_of(box.to, i)] = static_cast<T>(bits);              \
  }
TESSERA_FILL_BOX(1, uint8_t)
TESSERA_FILL_BOX(2, uint16_t)
TESSERA_FILL_BOX(4, uint32_t)
TESSERA_FILL_BOX(8, uint64_t)

#define TESSERA_FILL(bytes, T)                                                             \
  TESSERA_KERNEL(256, fill_##bytes, T* y, int64_t n, uint64_t bits) {                      \
    const int64_t begin = first_element();                                                 \
    if (begin >= n) return;                                                                \
    if (begin + kVector <= n && aligned(y)) {                                              \
      Vector<T> v;                                                                         \
      for (int k = 0; k < kVector; ++k) v.x[k] = static_cast<T>(bits);                     \
      store(y + begin, v);                                                                 \
    } else {                                                                               \
      for (int64_t i = begin; i < n && i < begin + kVector; ++i) y[i] = static_cast<T>(bits); \
    }                                                                                      \
  }
TESSERA_FILL(1, uint8_t)
TESSERA_FILL(2, uint16_t)
TESSERA_FILL(4, uint32_t)
TESSERA_FILL(8, uint64_t)

// `count` elements of a table, which come with the launch.
#define TESSERA_TABLE(bytes, T)                                                      \
  TESSERA_KERNEL(128, table_##bytes, T* y, int32_t count, TableChunk chunk) {        \
    const int i = static_cast<int>(threadIdx.x);                                     \
    if (i < count) y[i] = static_cast<T>(chunk.bits[i]);                             \
  }
TESSERA_TABLE(1, uint8_t)
TESSERA_TABLE(2, uint16_t)
TESSERA_TABLE(4, uint32_t)
TESSERA_TABLE(8, uint64_t)

// y[i] = i / repeat % size.
#define TESSERA_IOTA(suffix, T, C)                                                          \
  TESSERA_KERNEL(256, iota_##suffix, T* y, int64_t n, int64_t repeat, int64_t size) {       \
    const int64_t i = thread_number();                                                      \
    if (i < n) y[i] = narrow<T>(static_cast<C>(i / repeat % size));                         \
  }
TESSERA_IOTA(f32, float, float)
TESSERA_IOTA(bf16, Bf16, float)
TESSERA_IOTA(f64, double, double)
TESSERA_IOTA(i32, int32_t, int32_t)
TESSERA_IOTA(i64, int64_t, int64_t)

// One element a thread; the lines of row b have the key keys[b]. `begin` null: 0.
TESSERA_KERNEL(256, random_bits, const int64_t* keys, const int32_t* begin, int32_t* y, int64_t n,
               uint64_t stream, RandomPlaces places) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t line = i / places.width, column = i % places.width;
  const int64_t first = line_begin(places, line % places.lines, begin ? *begin : 0);
  y[i] = static_cast<int32_t>(random_bits16(static_cast<uint64_t>(keys[line / places.lines]), stream,
                                            static_cast<uint64_t>(first + column)));
}

// Rows of `width` elements of the table; of ids outside of it zeros. One element a thread.
#define TESSERA_GATHER(bytes, T, zero)                                                         \
  TESSERA_KERNEL(256, gather_##bytes, const T* table, const void* ids, int32_t wide_ids, T* y, \
                 int64_t rows, int64_t width, int64_t n) {                                     \
    const int64_t i = thread_number();                                                         \
    if (i >= n) return;                                                                        \
    const int64_t row = i / width;                                                             \
    const int64_t id = wide_ids ? static_cast<const int64_t*>(ids)[row]                        \
                                : static_cast<const int32_t*>(ids)[row];                       \
    y[i] = id >= 0 && id < rows ? table[id * width + (i - row * width)] : zero;                \
  }
TESSERA_GATHER(1, uint8_t, uint8_t{0})
TESSERA_GATHER(2, uint16_t, uint16_t{0})
TESSERA_GATHER(4, uint32_t, uint32_t{0})
TESSERA_GATHER(8, uint64_t, uint64_t{0})
TESSERA_GATHER(16, uint4, (uint4{0, 0, 0, 0}))

// y[row_b, start_b + t] = x[b, t] for the `tokens` tokens of x_b, each `width` elements; capacity
// tokens a row. What does not fit is left out. One element a thread.
#define TESSERA_CACHE_WRITE(bytes, T)                                                            \
  TESSERA_KERNEL(256, cache_write_##bytes, const T* x, const int32_t* start, const int32_t* row, \
                 T* y, int64_t n, int64_t tokens, int64_t width, int64_t rows,                   \
                 int64_t capacity) {                                                             \
    const int64_t i = thread_number();                                                           \
    if (i >= n) return;                                                                          \
    const int64_t token = i / width, b = token / tokens;                                         \
    const int64_t place = start[b] + (token - b * tokens);                                       \
    if (place < 0 || place >= capacity || row[b] < 0 || row[b] >= rows) return;                  \
    y[(row[b] * capacity + place) * width + (i - token * width)] = x[i];                         \
  }
TESSERA_CACHE_WRITE(1, uint8_t)
TESSERA_CACHE_WRITE(2, uint16_t)
TESSERA_CACHE_WRITE(4, uint32_t)
TESSERA_CACHE_WRITE(8, uint64_t)
TESSERA_CACHE_WRITE(16, uint4)

}  // namespace tessera::cuda
