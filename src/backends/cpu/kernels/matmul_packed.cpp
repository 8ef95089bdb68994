#include "backends/cpu/kernels/matmul_packed.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "backends/cpu/kernels/matmul_tile.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Lines of an operand, and depths, that one tile of packing takes at most. Where a tile takes all
// depths, operands of fewer than 768 lines are cut finer: by 384 they are one or two tiles, and dW
// of 256 x 256 and 256 x 704 takes 1.1 times as long on two threads. From 768 lines on finer tiles
// cost 1.05.
constexpr int64_t kPackedLines = 384, kPackedDepths = 256;
constexpr int64_t kFewPackedLines = 96, kFewLines = 2 * kPackedLines;
// Packed bytes of an operand at a time, in whole tiles: bounds the workspace of wide heads. From 8
// to 16 MiB the speed is the same.
constexpr int64_t kPackedBytes = int64_t{8} << 20;
// Packed bytes of a line at a time: what is packed stays nearer to the caches, and neither operand
// is packed again for every chunk of the other. f32 results hold the sums between such pieces: dW
// of f32 takes 0.9 of the time, dX of 32,000 columns 0.75 (vectors and tiles), dW of 256 x 256 bf16
// 0.9; 2,048 to 6,144 differ by 5 %. bf16 products come and go too fast for results that no cache
// holds: dW of 4,096 x 4,096 takes 1.1 with pieces.
constexpr int64_t kPieceBytes = 3072, kCachedSums = int64_t{16} << 20;
// The same where C is bf16 and sums wait in the workspace, if they are not more than that: 4,096 x
// 11,008 takes 0.6 of the time, dX of 32,000 columns 15 MiB less.
constexpr int64_t kKeptPieceBytes = 8192, kKeptSums = int64_t{64} << 20;
constexpr int64_t kAlignment = 64;
// A result of so many bytes is written past the caches: its lines are not read first, and it would
// push the operands out of L2. With 768 to 3,072 columns 10 to 25 % of a bf16 product. But where
// caches hold its lines, which they do where they were accessed so few bytes ago, they would have
// to give them up first: dX takes 0.63 of the time in a step of width 256 and 0.92 in one of 768
// where it goes through the caches. With 300 MiB instead the latter's forward products take 1.03.
constexpr int64_t kStreamedBytes = int64_t{2} << 20, kFarBytes = int64_t{128} << 20;

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
    piece_depth_ = piece_depth();
    keeps_sums_ = p.c != DType::kF32 && piece_depth_ < p.k;
    depth_block_ = balanced(piece_depth_, kernels.depth_block, kernels.depth_unit);
    panel_depth_ = piece_depth_ + kernels.spare_depth;
    rows_ = cut(p.m, tile.rows, kernels.rows);
    columns_ = cut(p.n, tile.columns, kernels.columns);
  }

  int64_t workspace_bytes(int threads) const override {
    const int64_t sums = keeps_sums_ ? rows_.tiles() * columns_.tiles() : threads;
    return std::max(packed_bytes(rows_) + packed_bytes(columns_) + sums * sums_bytes(),
                    kernels_.packs_all ? 0 : workspace_bytes_in_vectors(threads));
  }

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const void* bias, int64_t reuse_distance) const override {
    const MatmulProblem& p = problem();
    char* packed_a = static_cast<char*>(workspace);
    char* packed_b = packed_a + packed_bytes(rows_);
    char* sums = packed_b + packed_bytes(columns_);
    bool panels_hold = true;  // false: vectors multiplied, and overwrote what was packed
    int64_t depth = 0;
    do {  // once for k = 0 too: C becomes 0
      const Piece piece{
          .first = depth,
          .count = std::min(piece_depth_, p.k - depth),
          .last = depth + piece_depth_ >= p.k,
          .c = c,
          .bias = bias,
          .streams = (piece_depth_ >= p.k || keeps_sums_) && streams_result(p, c, reuse_distance)};
      const MatmulOperand rows_of_a = from_depth({a, p.a, p.lda, !p.transpose_a}, depth);
      const MatmulOperand columns_of_b = from_depth({b, p.b, p.ldb, p.transpose_b}, depth);
      for (int64_t column = 0; column < p.n; column += columns_.chunk) {
        for (int64_t row = 0; row < p.m; row += rows_.chunk) {
          const bool packs_a = column == 0 || rows_.chunk < p.m || !panels_hold;
          const bool packs_b = row == 0 || !panels_hold;
          panels_hold =
              pack(pool, {kernels_.pack_rows, rows_of_a, rows_, row, packs_a, packed_a},
                   {kernels_.pack_columns, columns_of_b, columns_, column, packs_b, packed_b},
                   piece.count);
          if (panels_hold) {
            multiply(pool, packed_a, packed_b, piece, row, column, sums);
          } else {
            multiply_in_vectors(pool, rows_of_a, columns_of_b, piece, row, column, workspace);
          }
        }
      }
      depth += piece_depth_;
    } while (depth < p.k);
  }

  std::string description() const override {
    return cat(name_, ", tiles ", rows_.tile, "x", columns_.tile);
  }

 private:
  // Depths [first, first + count) of the product.
  struct Piece {
    int64_t first, count;
    bool last;
    void* c;
    const void* bias;
    bool streams;
  };
  // Depths that are packed at a time.
  int64_t piece_depth() const {
    const MatmulProblem& p = problem();
    const int64_t sums = p.m * p.n * 4;
    bool in_pieces = true;
    if (p.c != DType::kF32) in_pieces = sums <= kKeptSums;
    if (p.c == DType::kF32 && p.a == DType::kBF16) in_pieces = sums <= kCachedSums;
    if (!in_pieces) return round_up(p.k, kernels_.depth_unit);
    const int64_t bytes = p.c == DType::kF32 ? kPieceBytes : kKeptPieceBytes;
    return balanced(p.k, bytes / kernels_.element_bytes, kernels_.depth_unit);
  }
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
  static MatmulOperand from_depth(MatmulOperand x, int64_t depth) {
    const int64_t elements = depth * (x.depth_is_contiguous ? 1 : x.stride);
    x.data = static_cast<const char*>(x.data) + elements * size_of(x.dtype);
    return x;
  }
  // Sums outlive a depth block only where there are several.
  int64_t sums_bytes() const {
    return depth_block_ >= piece_depth_ && !keeps_sums_
               ? 0
               : round_up(rows_.tile * columns_.tile * 4, kAlignment);
  }

  // A chunk of lines of an operand.
  struct Packing {
    MatmulKernels::Pack* kernel;
    MatmulOperand x;
    const Lines& lines;
    int64_t first;
    bool wanted;
    char* out;
  };
  // How it is cut into tiles of packing.
  struct PackingTiles {
    int64_t count, lines, depths;
  };
  PackingTiles packing_tiles(const Packing& of, int64_t depth) const {
    if (!of.wanted) return {};
    const int64_t count = std::min(of.lines.chunk, of.lines.count - of.first);
    // Where packing writes past the last depth, others must not have begun behind it.
    const bool whole = kernels_.spare_depth > 0;
    const int64_t most = whole && count < kFewLines ? kFewPackedLines : kPackedLines;
    const int64_t lines = balanced(count, most, of.lines.panel);
    const int64_t depths = whole ? std::max<int64_t>(1, depth) : kPackedDepths;
    return {ceil_div(count, lines) * ceil_div(depth, depths), lines, depths};
  }

  // Both operands at once: an operand alone may have fewer tiles than there are threads.
  bool pack(ThreadPool& pool, const Packing& a, const Packing& b, int64_t depth) const {
    const PackingTiles of_a = packing_tiles(a, depth), of_b = packing_tiles(b, depth);
    std::atomic<bool> holds_all = true;
    auto task = [&](int64_t tile, int) {
      const bool holds = tile < of_a.count ? pack_tile(a, of_a, tile, depth)
                                           : pack_tile(b, of_b, tile - of_a.count, depth);
      if (!holds) holds_all = false;
    };
    pool.run(of_a.count + of_b.count, std::ref(task));
    return holds_all;
  }
  bool pack_tile(const Packing& of, const PackingTiles& tiles, int64_t tile, int64_t depth) const {
    const int64_t count = std::min(of.lines.chunk, of.lines.count - of.first);
    const int64_t rows = ceil_div(count, tiles.lines);
    const int64_t line = tile % rows * tiles.lines, from = tile / rows * tiles.depths;
    return of.kernel(from_depth(of.x, from), of.first + line, std::min(tiles.lines, count - line),
                     std::min(tiles.depths, depth - from), of.lines.panel * panel_depth_,
                     of.out + line * line_bytes() + from * of.lines.panel * kernels_.element_bytes);
  }

  // Where panels cannot hold a number, vectors multiply the two chunks over that piece of the
  // depth, in the workspace of the panels.
  std::unique_ptr<const Matmul> in_vectors(int64_t m, int64_t n, int64_t k, bool first) const {
    MatmulProblem part = problem();
    part.m = m, part.n = n, part.k = k;
    part.accumulate |= !first;
    part.bias &= first;
    return make_vector_matmul(part, Isa::kAvx512);
  }
  void multiply_in_vectors(ThreadPool& pool, const MatmulOperand& a, const MatmulOperand& b,
                           const Piece& piece, int64_t row, int64_t column, void* workspace) const {
    TESSERA_CHECK(!keeps_sums_);
    auto from_line = [](const MatmulOperand& x, int64_t line) {
      const int64_t elements = line * (x.depth_is_contiguous ? x.stride : 1);
      return static_cast<const char*>(x.data) + elements * size_of(x.dtype);
    };
    const MatmulProblem& p = problem();
    const int64_t size = size_of(p.c);
    in_vectors(std::min(rows_.chunk, p.m - row), std::min(columns_.chunk, p.n - column),
               piece.count, piece.first == 0)
        ->run(pool, from_line(a, row), from_line(b, column),
              static_cast<char*>(piece.c) + (row * p.ldc + column) * size, workspace,
              piece.bias ? static_cast<const char*>(piece.bias) + column * size : nullptr);
  }
  int64_t workspace_bytes_in_vectors(int threads) const {
    // Parts are whole chunks and pieces, or the last ones.
    auto extents = [](int64_t all, int64_t part) {
      return std::array{std::min(all, part), all % std::max<int64_t>(1, part)};
    };
    int64_t bytes = 0;
    for (int64_t m : extents(problem().m, rows_.chunk))
      for (int64_t n : extents(problem().n, columns_.chunk))
        for (int64_t k : extents(problem().k, piece_depth_))
          bytes = std::max(bytes, in_vectors(m, n, k, true)->workspace_bytes(threads));
    return bytes;
  }

  void multiply(ThreadPool& pool, const char* a, const char* b, const Piece& piece, int64_t row,
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
          .c = static_cast<char*>(piece.c) + ((row + i) * p.ldc + column + j) * size_of(p.c),
          .dtype = p.c,
          .stride = p.ldc,
          .rows = std::min(rows_.tile, rows - i),
          .columns = std::min(columns_.tile, columns - j),
          .accumulate = p.accumulate || (piece.first > 0 && !keeps_sums_),
          .bias = p.bias && (piece.first == 0 || keeps_sums_)
                      ? static_cast<const char*>(piece.bias) + (column + j) * size_of(p.c)
                      : nullptr,
          .streams = piece.streams};
      const int64_t kept = (column + j) / columns_.tile * rows_.tiles() + (row + i) / rows_.tile;
      multiply_tile(packed(a, rows_, i), packed(b, columns_, j), piece, result,
                    reinterpret_cast<float*>(sums + (keeps_sums_ ? kept : thread) * sums_bytes()));
    };
    pool.run(tiles, std::ref(task));
  }

  MatmulBlock packed(const char* data, const Lines& lines, int64_t line) const {
    return {data + line * line_bytes(), lines.panel * line_bytes(),
            lines.panel * kernels_.depth_unit * kernels_.element_bytes};
  }
  MatmulBlock at_depth(MatmulBlock block, int64_t depth) const {
    block.data += depth / kernels_.depth_unit * block.unit;
    return block;
  }

  void multiply_tile(const MatmulBlock& a, const MatmulBlock& b, const Piece& piece,
                     const MatmulResult& result, float* sums) const {
    const int64_t end = round_up(piece.count, kernels_.depth_unit);
    const bool begins = piece.first == 0 || !keeps_sums_, ends = piece.last || !keeps_sums_;
    int64_t depth = 0;
    do {  // once for k = 0 too: C becomes 0
      const int64_t count = std::min(depth_block_, end - depth);
      const bool last = depth + count == end;
      kernels_.multiply(at_depth(a, depth), at_depth(b, depth), ceil_div(result.rows, rows_.panel),
                        ceil_div(result.columns, columns_.panel), count, sums, depth == 0 && begins,
                        last && ends ? &result : nullptr);
      depth += count;
    } while (depth < end);
  }

  MatmulKernels kernels_;
  std::string name_;
  int64_t piece_depth_ = 0, depth_block_ = 0, panel_depth_ = 0;
  bool keeps_sums_ = false;  // of every tile from one piece of the depth to the next
  Lines rows_{}, columns_{};
};

}  // namespace

bool streams_result(const MatmulProblem& p, const void* c, int64_t reuse_distance) {
  return reuse_distance >= kFarBytes && p.m * p.n * size_of(p.c) >= kStreamedBytes &&
         p.ldc * size_of(p.c) % kAlignment == 0 && reinterpret_cast<uintptr_t>(c) % kAlignment == 0;
}

#if defined(__x86_64__)
std::unique_ptr<const Matmul> make_amx_f32_matmul(const MatmulProblem& problem, Isa isa) {
  if (isa != Isa::kAmx || problem.a != DType::kF32) return nullptr;
  return std::make_unique<PackedMatmul>(problem, amx::kF32MatmulKernels, "packed amx, bf16x3");
}
#endif

std::unique_ptr<const Matmul> make_bf16_matmul(const MatmulProblem& problem, Isa isa) {
#if defined(__aarch64__)
  if (isa != Isa::kNeonBf16 || problem.a != DType::kBF16) return nullptr;
  return std::make_unique<PackedMatmul>(problem, bfmmla::kMatmulKernels, "packed neon_bf16");
#else
  if (isa != Isa::kAvx512Bf16 || problem.a != DType::kBF16) return nullptr;
  return std::make_unique<PackedMatmul>(problem, vdpbf16::kMatmulKernels, "packed avx512_bf16");
#endif
}

std::unique_ptr<const Matmul> make_vector_matmul(const MatmulProblem& problem, Isa isa) {
  if (isa == Isa::kAvx512Bf16 || isa == Isa::kAmx) isa = Isa::kAvx512;
  return std::make_unique<PackedMatmul>(problem, *TESSERA_SELECT(isa, kMatmulKernels),
                                        cat("packed ", name(isa)));
}

}  // namespace tessera::cpu
