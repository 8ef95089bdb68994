// scatter_add and the gradient of embedding: rows summed by their ids. Ids are sorted together with
// their positions; then the rows of an id lie in a row, in ascending order of position, and are
// summed in pieces of kScatterPiece, so that an id that many tokens have is not one block's work.
#include "sums.cuh"

namespace tessera::cuda {
namespace {

// An id and a position as one number: no two are the same, so their order is the only one. Ids
// outside of the table are behind all others.
constexpr uint64_t kOutside = 0xffffffffu;
__device__ __forceinline__ uint64_t key_of(uint64_t id, uint64_t position) {
  return id << 32 | position;
}
__device__ __forceinline__ uint64_t id_of(uint64_t key) { return key >> 32; }
__device__ __forceinline__ int64_t position_of(uint64_t key) {
  return static_cast<int64_t>(key & 0xffffffffu);
}

// Number of the first of sorted keys[begin, end) that is not less than `key`; `end` if all are.
__device__ __forceinline__ int64_t first_from(const uint64_t* keys, int64_t begin, int64_t end,
                                              uint64_t key) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// Bitonic sort, kSortedBlock keys a block. 256 threads.
template <class Id>
__device__ __forceinline__ void sort_block(const Id* ids, uint64_t* sorted, int64_t count,
                                           int64_t rows) {
  __shared__ uint64_t keys[kSortedBlock];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSortedBlock;
  const auto n = static_cast<int>(count - first < kSortedBlock ? count - first : kSortedBlock);
  const int t = static_cast<int>(threadIdx.x);
  int padded = 1;
  while (padded < n) padded *= 2;
  for (int i = t; i < padded; i += 256) {
    uint64_t key = ~uint64_t{0};
    if (i < n) {
      const int64_t id = ids[first + i];
      key = key_of(id >= 0 && id < rows ? static_cast<uint64_t>(id) : kOutside,
                   static_cast<uint64_t>(first + i));
    }
    keys[i] = key;
  }
  for (int size = 2; size <= padded; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int pair = t; pair < padded / 2; pair += 256) {
        const int low = 2 * pair - (pair & (distance - 1)), high = low + distance;
        const uint64_t a = keys[low], b = keys[high];
        const bool ascending = (low & size) == 0;
        if ((a > b) == ascending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
  for (int i = t; i < n; i += 256) sorted[first + i] = keys[i];
}

// Eight neighbouring columns of a row, or as many as it has.
template <class T>
__device__ __forceinline__ Vector<T> load_columns(const T* x, int64_t columns, bool vectors) {
  if (vectors) return load(x);
  Vector<T> v = {};
#pragma unroll
  for (int k = 0; k < kVector; ++k)
    if (k < columns) v.x[k] = x[k];
  return v;
}

template <class T>
__device__ __forceinline__ void store_columns(T* y, const Vector<T>& v, int64_t columns,
                                              bool vectors) {
  if (vectors) return store(y, v);
#pragma unroll
  for (int k = 0; k < kVector; ++k)
    if (k < columns) y[k] = v.x[k];
}
// Whether rows of `width` elements can be moved eight at a time.
template <class T>
__device__ __forceinline__ bool in_vectors(const T* rows, int64_t width) {
  return width % kVector == 0 && aligned(rows);
}

// body(first of eight columns, how many of them there are) for those of this thread.
template <class Body>
__device__ __forceinline__ void for_columns(int64_t width, Body body) {
  for (int64_t first = static_cast<int64_t>(threadIdx.x) * kVector; first < width;
       first += static_cast<int64_t>(blockDim.x) * kVector)
    body(first, width - first < kVector ? width - first : kVector);
}

// Where the sum of the piece that begins at `i` is kept. Of ids with several pieces at most one
// begins and one goes on within kScatterPiece keys.
__device__ __forceinline__ int64_t part_of(int64_t i, bool begins) {
  return i / kScatterPiece * 2 + (begins ? 0 : 1);
}

template <class Out>
__device__ __forceinline__ void add_to_row(Out* y, const Vector<Compute<Out>>& sums, int64_t columns,
                                           bool vectors) {
  Vector<Out> row = load_columns(y, columns, vectors);
#pragma unroll
  for (int k = 0; k < kVector; ++k)
    row.x[k] = narrow<Out>(added(static_cast<Compute<Out>>(widen(row.x[k])), sums.x[k]));
  store_columns(y, row, columns, vectors);
}

// A block a key: where a piece of an id begins it sums that. The sum is added to y[rows, width], or
// kept in `parts` if the id has other pieces.
template <class In, class Out>
__device__ __forceinline__ void scatter_pieces(const uint64_t* keys, const In* updates,
                                               Compute<Out>* parts, Out* y, int64_t count,
                                               int64_t width) {
  const int64_t i = blockIdx.x;
  const uint64_t id = id_of(keys[i]);
  if (id == kOutside) return;
  const bool begins = i == 0 || id_of(keys[i - 1]) != id;
  if (!begins) {
    if (i < kScatterPiece || id_of(keys[i - kScatterPiece]) != id) return;
    if ((i - first_from(keys, 0, i, key_of(id, 0))) % kScatterPiece != 0) return;
  }
  const int64_t most = count - i < kScatterPiece ? count : i + kScatterPiece;
  const int64_t end = first_from(keys, i, most, key_of(id + 1, 0));
  const bool whole = begins && (end == count || id_of(keys[end]) != id);
  const bool by_vectors = in_vectors(updates, width);
  for_columns(width, [&](int64_t first, int64_t columns) {
    Vector<Compute<Out>> sums = {};
#pragma unroll 4
    for (int64_t k = i; k < end; ++k) {
      const Vector<In> row =
          load_columns(updates + position_of(keys[k]) * width + first, columns, by_vectors);
#pragma unroll
      for (int c = 0; c < kVector; ++c)
        sums.x[c] = added(sums.x[c], static_cast<Compute<Out>>(widen(row.x[c])));
    }
    if (whole)
      add_to_row(y + static_cast<int64_t>(id) * width + first, sums, columns, in_vectors(y, width));
    else
      store_columns(parts + part_of(i, begins) * width + first, sums, columns,
                    in_vectors(parts, width));
  });
}

// A block a key: the first of an id with several pieces adds their sums to y, in order.
template <class Out>
__device__ __forceinline__ void add_parts(const uint64_t* keys, const Compute<Out>* parts, Out* y,
                                          int64_t count, int64_t width) {
  const int64_t i = blockIdx.x;
  const uint64_t id = id_of(keys[i]);
  if (id == kOutside || (i > 0 && id_of(keys[i - 1]) == id)) return;
  if (i + kScatterPiece >= count || id_of(keys[i + kScatterPiece]) != id) return;
  const int64_t end = first_from(keys, i, count, key_of(id + 1, 0));
  for_columns(width, [&](int64_t first, int64_t columns) {
    Vector<Compute<Out>> sums = {};
    for (int64_t k = i; k < end; k += kScatterPiece) {
      const Vector<Compute<Out>> part = load_columns(parts + part_of(k, k == i) * width + first,
                                                     columns, in_vectors(parts, width));
#pragma unroll
      for (int c = 0; c < kVector; ++c) sums.x[c] = added(sums.x[c], part.x[c]);
    }
    add_to_row(y + static_cast<int64_t>(id) * width + first, sums, columns, in_vectors(y, width));
  });
}

}  // namespace

TESSERA_KERNEL(256, sort_ids_i32, const int32_t* ids, uint64_t* sorted, int64_t count,
               int64_t rows) {
  sort_block(ids, sorted, count, rows);
}
TESSERA_KERNEL(256, sort_ids_i64, const int64_t* ids, uint64_t* sorted, int64_t count,
               int64_t rows) {
  sort_block(ids, sorted, count, rows);
}

// Sorted runs of `run` keys merged in pairs. A thread a key, which goes behind the lesser keys of
// the other run.
TESSERA_KERNEL(256, merge_sorted_ids, const uint64_t* from, uint64_t* to, int64_t count,
               int64_t run) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t own = i / run * run, pair = i / (2 * run) * 2 * run;
  const int64_t other = own == pair ? pair + run : pair;
  const int64_t begin = other < count ? other : count;
  const int64_t end = other + run < count ? other + run : count;
  to[pair + (i - own) + (first_from(from, begin, end, from[i]) - begin)] = from[i];
}

#define TESSERA_SCATTER(in, In, out, Out)                                                   \
  TESSERA_KERNEL(256, scatter_##in##_##out, const uint64_t* keys, const In* updates,        \
                 Compute<Out>* parts, Out* y, int64_t count, int64_t width) {               \
    scatter_pieces<In, Out>(keys, updates, parts, y, count, width);                         \
  }
TESSERA_SCATTER(f32, float, f32, float)
TESSERA_SCATTER(f32, float, bf16, Bf16)
TESSERA_SCATTER(f32, float, f64, double)
TESSERA_SCATTER(bf16, Bf16, f32, float)
TESSERA_SCATTER(bf16, Bf16, bf16, Bf16)
TESSERA_SCATTER(bf16, Bf16, f64, double)
TESSERA_SCATTER(f64, double, f32, float)
TESSERA_SCATTER(f64, double, bf16, Bf16)
TESSERA_SCATTER(f64, double, f64, double)
TESSERA_SCATTER(i32, int32_t, i32, int32_t)
TESSERA_SCATTER(i32, int32_t, i64, int64_t)
TESSERA_SCATTER(i64, int64_t, i32, int32_t)
TESSERA_SCATTER(i64, int64_t, i64, int64_t)

#define TESSERA_SCATTER_PARTS(out, Out)                                                       \
  TESSERA_KERNEL(256, scatter_parts_##out, const uint64_t* keys, const Compute<Out>* parts,   \
                 Out* y, int64_t count, int64_t width) {                                      \
    add_parts<Out>(keys, parts, y, count, width);                                             \
  }
TESSERA_SCATTER_PARTS(f32, float)
TESSERA_SCATTER_PARTS(bf16, Bf16)
TESSERA_SCATTER_PARTS(f64, double)
TESSERA_SCATTER_PARTS(i32, int32_t)
TESSERA_SCATTER_PARTS(i64, int64_t)

}  // namespace tessera::cuda
