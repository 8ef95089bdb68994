#include "backends/cpu/kernels/matmul_stationary.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include "backends/cpu/kernels/tiles.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Of A, packed: two of them, the second being packed while the first is multiplied, leave room for
// sums and for what streams past in an L2 of 2 MiB. With half of it products take 1.0 to 1.05 of
// the time.
constexpr int64_t kBlockBytes = int64_t{700} << 10;
// Where packed columns of so many bytes stay near, smaller blocks, so many a thread but of no fewer
// rows: the first block is packed before anything is multiplied.
constexpr int64_t kNearBytes = int64_t{1} << 20, kNearBlocks = 8, kLeastRows = 128;
// Depths of a piece of the product, and up to which it stays whole. Whole, no sums have to be kept;
// in pieces, blocks have more rows: B streams past fewer times. Where rows of the source are depths
// (dW), a block in pieces also reads longer stretches of them, which pays where the sums, of so
// many bytes, stay near: of 768 x 2,048 over 4,096 depths 0.95 of the time, of 4,096 x 4,096 over
// 2,048 1.08 to 1.2.
constexpr int64_t kPiece = 704, kWhole = 2048, kWholeNear = 1376, kNearSums = int64_t{16} << 20;
// Packed bytes of B at a time, in panels: bounds the workspace of wide heads.
constexpr int64_t kPackedBytes = int64_t{8} << 20;
// Sums that are kept from piece to piece, at most, and the least columns that have to share them:
// rows beyond begin anew.
constexpr int64_t kKeptBytes = int64_t{32} << 20, kLeastColumns = 512;

// C is written 32 columns at a time. Rows that lie whole pages apart then meet in few sets of L2,
// and a result that goes through it takes 1.6 times as long, wherever its lines are.
constexpr int64_t kPage = 4096;
int64_t reuse_distance_of(const MatmulProblem& p, int64_t planned) {
  return p.ldc * size_of(p.c) % kPage == 0 ? kPastCaches : planned;
}

constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Which part of the product is computed at a time, by all threads.
struct Part {
  int64_t row, rows, column, columns, depth, depths;
};

// How the rows of a part are cut, and into how many groups its columns: a task for each pair.
// Neither changes a bit: every sum takes its terms in the order of the depth.
struct Tasks {
  int64_t rows, blocks, groups;
  int64_t count() const { return blocks * groups; }
};

struct Buffers {
  const char *a, *b;
  char* c;
  const char* bias;
  char* columns;  // packed
  float* kept;
  char* own;  // of the first thread
  bool streams;
};

class StationaryMatmul final : public Matmul {
 public:
  StationaryMatmul(const MatmulProblem& p, const StationaryKernels& kernels)
      : Matmul(p), kernels_(kernels) {
    const int64_t depths = round_up(std::max<int64_t>(1, p.k), kernels.unit);
    const bool near = p.transpose_a && p.m * p.n * 4 <= kNearSums;
    const int64_t pieces = p.k <= (near ? kWholeNear : kWhole) ? 1 : ceil_div(p.k, kPiece);
    depths_ = round_up(ceil_div(depths, pieces), kernels.unit);
    columns_ = round_up(std::max<int64_t>(1, p.n), kernels.unit);
    columns_ =
        std::min(columns_, std::max<int64_t>(1, kPackedBytes / panel_bytes()) * kernels.unit);
    block_rows_ = std::max(kernels.unit, kBlockBytes / panel_bytes() * kernels.unit);
    rows_ = round_up(std::max<int64_t>(1, p.m), kernels.unit);
    if (keeps_sums()) {
      const int64_t kept = kKeptBytes / (kernels.unit * 4);  // of columns times rows / unit
      columns_ = std::min(columns_, std::max(kLeastColumns, kept / rows_ * kernels.unit));
      rows_ = std::min(rows_, round_up(kept / columns_ * kernels.unit, block_rows_));
    }
  }

  // Fewer rows may be cut into blocks of more: the last part can need more than the others.
  int64_t workspace_bytes(int threads) const override {
    const int64_t m = std::max<int64_t>(1, problem().m), last = (m - 1) % rows_ + 1;
    return own_offset() + threads * std::max(own_bytes(tasks(std::min(m, rows_), threads)),
                                             own_bytes(tasks(last, threads)));
  }

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const void* bias, int64_t reuse_distance) const override {
    const MatmulProblem& p = problem();
    char* memory = static_cast<char*>(workspace);
    const Buffers buffers{.a = static_cast<const char*>(a),
                          .b = static_cast<const char*>(b),
                          .c = static_cast<char*>(c),
                          .bias = static_cast<const char*>(bias),
                          .columns = memory,
                          .kept = reinterpret_cast<float*>(memory + columns_bytes()),
                          .own = memory + own_offset(),
                          .streams = streams_result(p, c, reuse_distance_of(p, reuse_distance))};
    for (int64_t column = 0; column < p.n; column += columns_) {
      for (int64_t row = 0; row < p.m; row += rows_) {
        Part part{row, std::min(rows_, p.m - row), column, std::min(columns_, p.n - column), 0, 0};
        do {  // once for k = 0 too: C becomes 0
          part.depths = std::min(depths_, p.k - part.depth);
          multiply(pool, part, buffers);
          part.depth += depths_;
        } while (part.depth < p.k);
      }
    }
  }

  std::string description() const override {
    return cat("stationary amx, blocks ", std::min(block_rows_, rows_), "x", depths_);
  }

 private:
  bool keeps_sums() const { return depths_ < problem().k; }
  int64_t panels(int64_t lines) const { return ceil_div(lines, kernels_.unit); }
  int64_t panel_bytes() const { return depths_ / kernels_.unit * kernels_.unit_bytes; }
  int64_t columns_bytes() const { return panels(columns_) * panel_bytes(); }
  int64_t own_offset() const { return columns_bytes() + (keeps_sums() ? rows_ * columns_ * 4 : 0); }
  // Of a thread: two blocks of A, the sums of a column panel.
  int64_t own_bytes(const Tasks& tasks) const {
    return 2 * panels(tasks.rows) * panel_bytes() + tasks.rows * kernels_.unit * 4;
  }
  // As many blocks for every thread, where there are enough rows.
  Tasks tasks(int64_t rows, int threads) const {
    const int64_t all = panels(rows);
    const int64_t fewest = columns_bytes() <= kNearBytes ? rows / (kNearBlocks * threads) : rows;
    const int64_t most = std::min(block_rows_, std::max(kLeastRows, fewest));
    int64_t blocks = round_up(ceil_div(all * kernels_.unit, most), threads);
    const int64_t of_block = ceil_div(all, blocks);
    blocks = ceil_div(all, of_block);
    return {of_block * kernels_.unit, blocks, blocks < threads ? ceil_div(threads, blocks) : 1};
  }

  PanelSource rows_of(const Part& x, const Tasks& tasks, int64_t task, const Buffers& buffers,
                      char* out) const {
    const MatmulProblem& p = problem();
    const int64_t first = task / tasks.groups * tasks.rows;
    return source(buffers.a, p.lda, !p.transpose_a, x.row + first,
                  std::min(tasks.rows, x.rows - first), x, false, out);
  }
  // Share `index` of `count` of the columns of x.
  PanelSource columns_of(const Part& x, int64_t index, int64_t count,
                         const Buffers& buffers) const {
    const MatmulProblem& p = problem();
    const int64_t all = panels(x.columns), begin = all * index / count,
                  end = all * (index + 1) / count;
    const int64_t first = begin * kernels_.unit;
    return source(buffers.b, p.ldb, p.transpose_b, x.column + first,
                  std::min(end * kernels_.unit, x.columns) - first, x, true,
                  buffers.columns + begin * packed_bytes(x));
  }
  // A panel over the depths of x.
  int64_t packed_bytes(const Part& x) const {
    return ceil_div(x.depths, kernels_.unit) * kernels_.unit_bytes;
  }
  PanelSource source(const char* data, int64_t stride, bool along, int64_t line, int64_t lines,
                     const Part& x, bool columns, char* out) const {
    const int64_t first = along ? line * stride + x.depth : x.depth * stride + line;
    return {.data = data + first * size_of(DType::kBF16),
            .stride = stride,
            .depth_is_contiguous = along,
            .columns = columns,
            .lines = lines,
            .depths = x.depths,
            .out = out};
  }

  void multiply(ThreadPool& pool, const Part& x, const Buffers& buffers) const {
    const Tasks all = tasks(x.rows, pool.threads());
    const int64_t shares = std::min<int64_t>(pool.threads(), panels(x.columns));
    auto pack = [&](int64_t share, int) { kernels_.pack(columns_of(x, share, shares, buffers)); };
    pool.run(shares, std::ref(pack));
    std::atomic<int64_t> next = 0;
    auto work = [&](int64_t, int thread) { take_tasks(x, all, buffers, next, thread); };
    pool.run(std::min<int64_t>(pool.threads(), all.count()), std::ref(work));
  }

  void take_tasks(const Part& x, const Tasks& all, const Buffers& buffers,
                  std::atomic<int64_t>& next, int thread) const {
    int64_t task = next++;
    if (task >= all.count()) return;
    char* own = buffers.own + thread * own_bytes(all);
    char* now = own;
    char* then = own + panels(all.rows) * panel_bytes();
    float* sums = reinterpret_cast<float*>(then + panels(all.rows) * panel_bytes());
    kernels_.pack(rows_of(x, all, task, buffers, now));
    while (task < all.count()) {
      const int64_t ahead = next++;
      PanelSource rows;
      if (ahead < all.count()) rows = rows_of(x, all, ahead, buffers, then);
      kernels_.multiply(product(x, all, task, buffers, now, sums), rows);
      std::swap(now, then);
      task = ahead;
    }
  }

  StationaryProduct product(const Part& x, const Tasks& all, int64_t task, const Buffers& buffers,
                            const char* packed_a, float* sums) const {
    const MatmulProblem& p = problem();
    const int64_t first = task / all.groups * all.rows, rows = std::min(all.rows, x.rows - first);
    const int64_t group = task % all.groups, begin = panels(x.columns) * group / all.groups,
                  end = panels(x.columns) * (group + 1) / all.groups;
    const int64_t row = x.row + first, column = x.column + begin * kernels_.unit;
    float* kept =
        buffers.kept + first * columns_ + begin * kernels_.unit * panels(rows) * kernels_.unit;
    return {.a = packed_a,
            .b = buffers.columns + begin * packed_bytes(x),
            .row_panels = panels(rows),
            .column_panels = end - begin,
            .units = ceil_div(x.depths, kernels_.unit),
            .sums = keeps_sums() ? kept : sums,
            .keeps_sums = keeps_sums(),
            .begins = x.depth == 0,
            .ends = x.depth + depths_ >= p.k,
            .result = {.c = buffers.c + (row * p.ldc + column) * size_of(p.c),
                       .dtype = p.c,
                       .stride = p.ldc,
                       .rows = rows,
                       .columns = std::min(end * kernels_.unit, x.columns) - begin * kernels_.unit,
                       .accumulate = p.accumulate,
                       .bias = p.bias ? buffers.bias + column * size_of(p.c) : nullptr,
                       .streams = buffers.streams}};
  }

  StationaryKernels kernels_;
  int64_t rows_ = 0, columns_ = 0, depths_ = 0;  // of a part at most, whole units
  int64_t block_rows_ = 0;                       // that a thread multiplies at a time, at most
};

}  // namespace

#if defined(__x86_64__)
std::unique_ptr<const Matmul> make_amx_matmul(const MatmulProblem& problem, Isa isa) {
  if (isa != Isa::kAmx || problem.a != DType::kBF16) return nullptr;
  return make_stationary_matmul(problem, amx::kStationaryKernels);
}
#endif

std::unique_ptr<const Matmul> make_stationary_matmul(const MatmulProblem& problem,
                                                     const StationaryKernels& kernels) {
  return std::make_unique<StationaryMatmul>(problem, kernels);
}

}  // namespace tessera::cpu
