#include "backends/cpu/kernels/embedding.h"

#include <cstring>

#include "backends/cpu/kernels/tiles.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// A tile of the gradient. A few ids make up much of a text: cutting rows by columns too keeps such
// an id from holding up all threads.
constexpr int64_t kRows = 64, kColumns = kEmbeddingColumns;

// Whether the table has a row for the id; only a part of a table may have none.
bool has_row(int32_t id, int64_t vocabulary, bool partial) {
  bool inside = id >= 0 && id < vocabulary;
  TESSERA_CHECK(inside || partial, cat("id ", id, " of ", vocabulary));
  return inside;
}

// Counting sort: afterwards the tokens of id v are order[starts[v]] .. order[starts[v + 1] - 1],
// ascending.
void sort_tokens(const EmbeddingBackward& args, int32_t* starts, int32_t* order) {
  std::fill(starts, starts + args.vocabulary + 1, 0);
  for (int64_t n = 0; n < args.tokens; ++n) {
    if (has_row(args.ids[n], args.vocabulary, args.partial)) ++starts[args.ids[n] + 1];
  }
  for (int64_t v = 0; v < args.vocabulary; ++v) starts[v + 1] += starts[v];
  for (int64_t n = 0; n < args.tokens; ++n) {
    if (has_row(args.ids[n], args.vocabulary, args.partial))
      order[starts[args.ids[n]]++] = static_cast<int32_t>(n);
  }
  // Placing the tokens moved every start to the next one's.
  std::copy_backward(starts, starts + args.vocabulary, starts + args.vocabulary + 1);
  starts[0] = 0;
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, ThreadPool& pool) {
  int64_t bytes = args.width * size_of(args.dtype);
  for_ranges(pool, args.tokens, rows_per_tile(args.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      char* y = static_cast<char*>(args.y) + n * bytes;
      if (has_row(args.ids[n], args.vocabulary, args.partial))
        std::memcpy(y, static_cast<const char*>(args.table) + args.ids[n] * bytes,
                    static_cast<size_t>(bytes));
      else
        std::memset(y, 0, static_cast<size_t>(bytes));
    }
  });
}

int64_t embedding_backward_workspace(int64_t tokens, int64_t vocabulary) {
  return (vocabulary + 1 + tokens) * static_cast<int64_t>(sizeof(int32_t));
}

void embedding_backward(const EmbeddingBackward& args, Isa isa, ThreadPool& pool) {
  int32_t* starts = args.workspace;
  int32_t* order = starts + args.vocabulary + 1;
  sort_tokens(args, starts, order);
  auto sum = TESSERA_SELECT(isa, embedding_sum_tokens);
  int64_t strips = ceil_div(args.width, kColumns);
  auto tile = [&](int64_t index, int) {
    int64_t column = index % strips * kColumns;
    int64_t columns = std::min(kColumns, args.width - column);
    int64_t begin = index / strips * kRows, end = std::min(begin + kRows, args.vocabulary);
    for (int64_t row = begin; row < end; ++row) {
      sum(args, row, order + starts[row], starts[row + 1] - starts[row], column, columns);
    }
  };
  pool.run(ceil_div(args.vocabulary, kRows) * strips, std::ref(tile));
}

}  // namespace tessera::cpu
