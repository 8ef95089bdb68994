#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y[n] = table[ids[n]]. An id outside [0, vocabulary) is an InternalError, for data is checked when
// it is read; with `partial` it gives zeros.
struct EmbeddingForward {
  DType dtype;         // of table and y: kF32 or kBF16
  const int32_t* ids;  // [tokens]
  const void* table;   // [vocabulary, width]
  void* y;             // [tokens, width]
  int64_t tokens, vocabulary, width;
  bool partial = false;
};
void embedding_forward(const EmbeddingForward& args, ThreadPool& pool);

// dtable[v] = sum of dy[n] over the n with ids[n] = v, in f32 and in ascending n. Every row of
// dtable is written; with `adds` the sum is added to what is there. The tokens are first sorted by
// id, so that a tile owns rows of dtable; with `partial` those with ids outside the table are left
// out.
struct EmbeddingBackward {
  DType dtype;         // of dy: kF32 or kBF16
  const int32_t* ids;  // [tokens]
  const void* dy;      // [tokens, width]
  float* dtable;       // [vocabulary, width]
  int32_t* workspace;  // embedding_backward_workspace() bytes
  int64_t tokens, vocabulary, width;
  bool partial = false, adds = false;
};
int64_t embedding_backward_workspace(int64_t tokens, int64_t vocabulary);  // bytes
void embedding_backward(const EmbeddingBackward& args, Isa isa, ThreadPool& pool);

// Columns [column, column + columns) of dtable[row], at most kEmbeddingColumns: the sum over
// `count` tokens, or with `adds` that sum added to them.
constexpr int64_t kEmbeddingColumns = 256;
TESSERA_DECLARE_PER_ISA(void embedding_sum_tokens(const EmbeddingBackward& args, int64_t row,
                                                  const int32_t* tokens, int64_t count,
                                                  int64_t column, int64_t columns))

}  // namespace tessera::cpu
