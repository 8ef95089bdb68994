// Blocks of a bf16 product on AMX. A unit of a panel is two tiles of A or B; four tiles of C stay
// in registers over a block of depth.
#include "backends/cpu/kernels/amx/panel_packing.h"

namespace tessera::cpu::amx {
namespace {

// Units of depth, at most, of a panel of B that stay in L1 while A passes it by. Were tiles of A to
// stay there too, it would hold 8, and products take 1.05 to 1.2 of the time; 22 take 1.0 to 1.25.
constexpr int64_t kBlockUnits = 12;

void pack(const PanelSource& x) {
  if (x.columns && !x.depth_is_contiguous) return pack_columns_by_rows(x);
  for (PanelPacker packer(x); packer.left() > 0;) packer.step();
}

// Writes 32 x 32 sums to C a few rows at a time, while the next ones are computed: all at once,
// stores past the caches would keep tiles from being loaded. Products to wide results take 0.87 to
// 0.92 of the time so.
class SpreadStore {
 public:
  explicit SpreadStore(const MatmulResult& result) : result_(result) {}

  // Asks for the part of C at (row, column) if it will be read.
  void ask(int64_t row, int64_t column) {
    if (!result_.accumulate) return;
    const int64_t bytes = result_.dtype == DType::kF32 ? 4 : 2;
    asked_ = (const char*)result_.c + (row * result_.stride + column) * bytes;
    asked_stride_ = result_.stride * bytes;
    asked_rows_ = result_.rows - row < kUnit ? result_.rows - row : kUnit;
  }
  // Where the sums for (row, column) are to be left.
  float* begin(int64_t row, int64_t column) {
    finish();
    row_ = row, column_ = column, step_ = 0;
    return sums_;
  }
  __attribute__((always_inline)) void step() {
    for (int i = 0; i < kRows && asked_rows_ > 0; ++i, --asked_rows_, asked_ += asked_stride_) {
      _mm_prefetch(asked_, _MM_HINT_T0);
      _mm_prefetch(asked_ + 64, _MM_HINT_T0);
    }
    if (step_ == kSteps) return;
    store<kRows>(sums_ + step_ * kRows * kUnit, result_, row_ + step_ * kRows, column_);
    ++step_;
  }
  void finish() {
    while (step_ < kSteps) step();
  }

 private:
  static constexpr int kRows = kUnit / kSteps;
  MatmulResult result_;
  int64_t row_ = 0, column_ = 0;
  int step_ = kSteps;
  const char* asked_ = nullptr;
  int64_t asked_stride_ = 0, asked_rows_ = 0;
  alignas(64) float sums_[kUnit * kUnit];
};

// Spreads the steps of packing over the iterations of the innermost loop.
class SpreadPacking {
 public:
  SpreadPacking(const PanelSource& x, int64_t iterations)
      : packer_(x), steps_(packer_.left()), iterations_(iterations) {}

  __attribute__((always_inline)) void step() {
    for (due_ += steps_; due_ >= iterations_; due_ -= iterations_) packer_.step();
  }
  void finish() {
    while (packer_.left() > 0) packer_.step();
  }

 private:
  PanelPacker packer_;
  const int64_t steps_, iterations_;
  int64_t due_ = 0;
};

// Asks for what lies between two addresses, as many lines in each of `steps` steps: the next part
// of B is in L2 when its tiles are loaded (products take 0.85 to 0.95 of the time).
class SpreadAsking {
 public:
  SpreadAsking(const char* from, const char* end, int64_t steps) : at_(from), end_(end) {
    if (steps > 0) bytes_ = ((end - from) / kLine + steps - 1) / steps * kLine;
  }

  __attribute__((always_inline)) void step() {
    const char* end = at_ + bytes_ < end_ ? at_ + bytes_ : end_;
    for (; at_ < end; at_ += kLine) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  static constexpr int64_t kLine = 64;
  const char *at_, *end_;
  int64_t bytes_ = 0;
};

void multiply(const StationaryProduct& x, const PanelSource& ahead) {
  TileScope tiles;
  SpreadStore stored(x.result);
  SpreadPacking packing(ahead, x.row_panels * x.column_panels * x.units);
  constexpr int64_t kUnitBytes = 2 * kTileBytes;
  const int64_t blocks = (x.units + kBlockUnits - 1) / kBlockUnits;
  const int64_t block = blocks > 0 ? (x.units + blocks - 1) / blocks : 0;
  const char* const b_end = x.b + x.column_panels * x.units * kUnitBytes;
  for (int64_t j = 0; j < x.column_panels; ++j) {
    float* sums = x.sums + (x.keeps_sums ? j * x.row_panels * kUnit * kUnit : 0);
    int64_t unit = 0;
    do {  // once where there is no depth: C becomes 0
      const int64_t count = x.units - unit < block ? x.units - unit : block;
      const bool first = unit == 0 && x.begins, last = unit + count == x.units && x.ends;
      const char* next = x.b + (j * x.units + unit + count) * kUnitBytes;
      const char* next_end = next + block * kUnitBytes;
      SpreadAsking columns(next, next_end < b_end ? next_end : b_end, x.row_panels * count);
      for (int64_t i = 0; i < x.row_panels; ++i) {
        float* kept = sums + i * kUnit * kUnit;
        const char* a = x.a + (i * x.units + unit) * kUnitBytes;
        const char* b = x.b + (j * x.units + unit) * kUnitBytes;
        load_sums(first ? nullptr : kept);
        if (last) stored.ask(i * kUnit, j * kUnit);
        for (int64_t u = 0; u < count; ++u, a += kUnitBytes, b += kUnitBytes) {
          tile_load_passing<4>(a, 64);
          tile_load<6>(b, 64);
          tile_multiply<0, 4, 6>();
          tile_load<7>(b + kTileBytes, 64);
          tile_multiply<1, 4, 7>();
          tile_load_passing<5>(a + kTileBytes, 64);
          tile_multiply<2, 5, 6>();
          tile_multiply<3, 5, 7>();
          columns.step();
          packing.step();
          stored.step();
        }
        store_sums(last ? stored.begin(i * kUnit, j * kUnit) : kept);
      }
      unit += count;
    } while (unit < x.units);
  }
  stored.finish();
  packing.finish();
  if (x.ends && x.result.streams) _mm_sfence();
}

}  // namespace

constinit const StationaryKernels kStationaryKernels = {
    .unit = kUnit, .unit_bytes = kUnitWords * 4, .pack = pack, .multiply = multiply};

}  // namespace tessera::cpu::amx
