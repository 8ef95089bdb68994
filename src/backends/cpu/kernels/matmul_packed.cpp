#include "backends/cpu/kernels/matmul_packed.h"

#include <algorithm>
#include <functional>

#include "backends/cpu/kernels/matmul_tile.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Lines of an operand that one tile of packing takes, whole panels.
constexpr int64_t kPackedLines = 384;
// Packed bytes of an operand at a time, in whole tiles: bounds the workspace of wide heads.
constexpr int64_t kPackedBytes = int64_t{16} << 20;
constexpr int64_t kAlignment = 64;
// A result of so many bytes is written past the caches: its lines are not read first, and it would
// push the operands out of L2. With 768 to 3,072 columns 10 to 25 % of a bf16 product.
constexpr int64_t kStreamedBytes = int64_t{2} << 20;
// Rows of A are read where they lie for up to so many column tiles: forward and dX are 10 to 20 %
// faster without packing. In more of them, packed panels pay: their lines follow each other.
constexpr int64_t kUnpackedColumnTiles = 8;

constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// `extent` split in equal parts no longer than `limit`, rounded up to whole units.
int64_t balanced(int64_t extent, int64_t limit, int64_t unit) {
  int64_t parts = std::max<int64_t>(1, ceil_div(extent, limit));
  return std::max(unit, round_up(ceil_div(extent, parts), unit));
}

// Rows of op(A) or columns of op(B): how they are cut.
struct Lines {
  int64_t count, panel, tile, chunk;  // a chunk, whole tiles, is packed at a time
  int64_t tiles() const { return ceil_div(count, tile); }
};

class PackedMatmul final : public Matmul {
 public:
  PackedMatmul(const MatmulProblem& p, const MatmulKernels& kernels, std::string_view name)
      : Matmul(p), kernels_(kernels), name_(name) {
    const MatmulTile tile = matmul_tile(p.m, p.n, {kernels.tile_rows, kernels.tile_columns});
    depth_block_ = balanced(p.k, kernels.depth_block, kernels.depth_unit);
    packed_depth_ = round_up(p.k, kernels.depth_unit);
    panel_depth_ = packed_depth_ + kernels.spare_depth;
    rows_ = cut(p.m, tile.rows, kernels.rows);
    columns_ = cut(p.n, tile.columns, kernels.columns);
    reads_rows_ = kernels.reads_rows && !p.transpose_a && p.m % kernels.rows == 0 &&
                  (p.k % kernels.depth_unit == 0 || p.padded_a) &&
                  columns_.tiles() <= kUnpackedColumnTiles;
    TESSERA_CHECK(kMatmulPadding % kernels.depth_unit == 0);
    if (reads_rows_) rows_.chunk = rows_.count;
  }

  int64_t workspace_bytes(int threads) const override {
    return packed_a_bytes() + packed_bytes(columns_) + threads * sums_bytes();
  }

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const void* bias) const override {
    const MatmulProblem& p = problem();
    const MatmulOperand rows_of_a{a, p.a, p.lda, !p.transpose_a};
    const MatmulOperand columns_of_b{b, p.b, p.ldb, p.transpose_b};
    char* packed_a = static_cast<char*>(workspace);
    char* packed_b = packed_a + packed_a_bytes();
    for (int64_t column = 0; column < p.n; column += columns_.chunk) {
      pack(pool, kernels_.pack_columns, columns_of_b, columns_, column, packed_b);
      for (int64_t row = 0; row < p.m; row += rows_.chunk) {
        if (!reads_rows_ && (column == 0 || rows_.chunk < p.m)) {
          pack(pool, kernels_.pack_rows, rows_of_a, rows_, row, packed_a);
        }
        multiply(pool, reads_rows_ ? static_cast<const char*>(a) : packed_a, packed_b,
                 {c, bias, streams(c)}, row, column, packed_b + packed_bytes(columns_));
      }
    }
  }

  std::string description() const override {
    return cat(name_, ", tiles ", rows_.tile, "x", columns_.tile);
  }

 private:
  struct Result {
    void* c;
    const void* bias;
    bool streams;
  };
  Lines cut(int64_t count, int64_t tile, int64_t panel) const {
    Lines lines{count, panel, balanced(count, tile, panel), 0};
    int64_t fit = kPackedBytes / (lines.tile * std::max<int64_t>(1, line_bytes()));
    lines.chunk = std::min(std::max<int64_t>(1, fit), lines.tiles()) * lines.tile;
    return lines;
  }
  int64_t line_bytes() const { return panel_depth_ * kernels_.element_bytes; }
  int64_t packed_bytes(const Lines& lines) const {
    return round_up(lines.chunk * line_bytes(), kAlignment);
  }
  bool streams(const void* c) const {
    const MatmulProblem& p = problem();
    return p.m * p.n * size_of(p.c) >= kStreamedBytes && p.ldc * size_of(p.c) % kAlignment == 0 &&
           reinterpret_cast<uintptr_t>(c) % kAlignment == 0;
  }
  int64_t packed_a_bytes() const { return reads_rows_ ? 0 : packed_bytes(rows_); }
  // Sums outlive a depth block only where there are several.
  int64_t sums_bytes() const {
    return depth_block_ >= packed_depth_ ? 0 : round_up(rows_.tile * columns_.tile * 4, kAlignment);
  }

  void pack(ThreadPool& pool, MatmulKernels::Pack* kernel, const MatmulOperand& x,
            const Lines& lines, int64_t first, char* out) const {
    const int64_t count = std::min(lines.chunk, lines.count - first);
    const int64_t step = kPackedLines / lines.panel * lines.panel;
    auto task = [&](int64_t tile, int) {
      int64_t at = tile * step;
      kernel(x, first + at, std::min(step, count - at), problem().k, lines.panel * panel_depth_,
             out + at * line_bytes());
    };
    pool.run(ceil_div(count, step), std::ref(task));
  }

  void multiply(ThreadPool& pool, const char* a, const char* b, Result to, int64_t row,
                int64_t column, char* sums) const {
    const int64_t rows = std::min(rows_.chunk, rows_.count - row);
    const int64_t columns = std::min(columns_.chunk, columns_.count - column);
    // Row tiles of one column tile follow each other, so that its part of B stays in L2.
    const int64_t row_tiles = ceil_div(rows, rows_.tile);
    const int64_t tiles = row_tiles * ceil_div(columns, columns_.tile);
    auto task = [&](int64_t tile, int thread) {
      int64_t i = tile % row_tiles * rows_.tile, j = tile / row_tiles * columns_.tile;
      const MatmulProblem& p = problem();
      const MatmulResult result{
          static_cast<char*>(to.c) + ((row + i) * p.ldc + column + j) * size_of(p.c),
          p.c,
          p.ldc,
          std::min(rows_.tile, rows - i),
          std::min(columns_.tile, columns - j),
          p.accumulate,
          p.bias ? static_cast<const char*>(to.bias) + (column + j) * size_of(p.c) : nullptr,
          to.streams};
      // The tile that this thread most likely takes next.
      int64_t next_i = std::min(tile + pool.threads(), tiles - 1) % row_tiles * rows_.tile;
      multiply_tile(rows_of_a(a, i), columns_of_b(b, j), rows_of_a(a, next_i), result,
                    reinterpret_cast<float*>(sums + thread * sums_bytes()));
    };
    pool.run(tiles, std::ref(task));
  }

  MatmulBlock packed(const char* data, int64_t line, int64_t panel) const {
    const int64_t bytes = kernels_.depth_unit * kernels_.element_bytes;
    return {data + line * line_bytes(), panel * line_bytes(), panel * bytes, bytes};
  }
  MatmulBlock columns_of_b(const char* b, int64_t j) const { return packed(b, j, columns_.panel); }
  MatmulBlock rows_of_a(const char* a, int64_t i) const {
    if (!reads_rows_) return packed(a, i, rows_.panel);
    const int64_t row_bytes = problem().lda * size_of(problem().a);
    return {a + i * row_bytes, rows_.panel * row_bytes, kernels_.depth_unit * size_of(problem().a),
            row_bytes};
  }
  MatmulBlock at_depth(MatmulBlock block, int64_t depth) const {
    block.data += depth / kernels_.depth_unit * block.unit;
    return block;
  }

  void multiply_tile(const MatmulBlock& a, const MatmulBlock& b, const MatmulBlock& next_a,
                     const MatmulResult& result, float* sums) const {
    int64_t depth = 0;
    do {  // once for k = 0 too: C becomes 0
      const int64_t count = std::min(depth_block_, packed_depth_ - depth);
      const bool last = depth + count == packed_depth_;
      const MatmulBlock next = last ? next_a : at_depth(a, depth + count);
      kernels_.multiply(at_depth(a, depth), at_depth(b, depth), ceil_div(result.rows, rows_.panel),
                        ceil_div(result.columns, columns_.panel), count, sums, depth == 0,
                        last ? &result : nullptr, reads_rows_ ? &next : nullptr);
      depth += count;
    } while (depth < packed_depth_);
  }

  MatmulKernels kernels_;
  std::string name_;
  int64_t depth_block_ = 0, packed_depth_ = 0, panel_depth_ = 0;
  bool reads_rows_ = false;  // of A where they lie
  Lines rows_{}, columns_{};
};

}  // namespace

std::unique_ptr<const Matmul> make_amx_matmul(const MatmulProblem& problem, Isa isa) {
  if (problem.a != DType::kBF16 || isa != Isa::kAmx) return nullptr;
  return std::make_unique<PackedMatmul>(problem, amx::matmul_kernels(), "packed amx");
}

std::unique_ptr<const Matmul> make_vector_matmul(const MatmulProblem& problem, Isa isa) {
  isa = std::min(isa, Isa::kAvx512);
  return std::make_unique<PackedMatmul>(problem, TESSERA_SELECT(isa, matmul_kernels)(),
                                        cat("packed ", name(isa)));
}

}  // namespace tessera::cpu
