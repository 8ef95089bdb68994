#pragma once
// Units of panels of bf16, each packed in eight steps so that tile instructions run meanwhile.
// Included by amx/matmul.cpp only; the rule for included headers is that of isa/simd.h.
#include "backends/cpu/kernels/amx/matmul_unit.h"
#include "backends/cpu/kernels/matmul_stationary.h"

namespace tessera::cpu::amx {

constexpr int kSteps = 8;

// Four lanes of 16 bytes, `stride` bytes apart.
TESSERA_INLINE __m512i gather_lanes(const char* x, int64_t stride) {
  auto lane = [&](int64_t i) { return _mm_loadu_si128((const __m128i*)(x + i * stride)); };
  __m512i all = _mm512_castsi128_si512(lane(0));
  all = _mm512_mask_broadcast_i32x4(all, 0x00f0, lane(1));
  all = _mm512_mask_broadcast_i32x4(all, 0x0f00, lane(2));
  return _mm512_mask_broadcast_i32x4(all, 0xf000, lane(3));
}

// The source's rows are lines (along) or depths (across), `stride` bytes apart.
TESSERA_INLINE void pack_rows_along_step(const char* x, int64_t stride, int step, uint32_t* to) {
#pragma GCC unroll 4
  for (int i = 4 * step; i < 4 * step + 4; ++i)
    _mm512_store_si512(to + i * 16, _mm512_loadu_si512(x + i * stride));
}
// Eight lines in every other step: a transpose of 8 x 8 in each lane.
TESSERA_INLINE void pack_rows_across_step(const char* x, int64_t stride, int step, uint32_t* to) {
  if (step % 2 != 0) return;
  __m512i z[8], a[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) z[r] = gather_lanes(x + 8 * step + r * stride, 8 * stride);
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    a[r] = _mm512_unpacklo_epi16(z[r], z[r + 1]);
    a[r + 1] = _mm512_unpackhi_epi16(z[r], z[r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    z[r] = _mm512_unpacklo_epi32(a[r], a[r + 2]);
    z[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 2]);
    z[r + 2] = _mm512_unpacklo_epi32(a[r + 1], a[r + 3]);
    z[r + 3] = _mm512_unpackhi_epi32(a[r + 1], a[r + 3]);
  }
  to += step * 4 * 16;
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    _mm512_store_si512(to + 2 * c * 16, _mm512_unpacklo_epi64(z[c], z[c + 4]));
    _mm512_store_si512(to + (2 * c + 1) * 16, _mm512_unpackhi_epi64(z[c], z[c + 4]));
  }
}
// Four words of 16 lines: a transpose of 4 x 4 in each lane.
TESSERA_INLINE void pack_columns_along_step(const char* x, int64_t stride, int step, uint32_t* to) {
  const int half = step / 4, word = step % 4 * 4;
  x += half * 16 * stride + 4 * word;
  __m512i z[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) z[r] = gather_lanes(x + r * stride, 4 * stride);
  const __m512i a0 = _mm512_unpacklo_epi32(z[0], z[1]), a1 = _mm512_unpackhi_epi32(z[0], z[1]);
  const __m512i a2 = _mm512_unpacklo_epi32(z[2], z[3]), a3 = _mm512_unpackhi_epi32(z[2], z[3]);
  to += (half * 16 + word) * 16;
  _mm512_store_si512(to, _mm512_unpacklo_epi64(a0, a2));
  _mm512_store_si512(to + 16, _mm512_unpackhi_epi64(a0, a2));
  _mm512_store_si512(to + 32, _mm512_unpacklo_epi64(a1, a3));
  _mm512_store_si512(to + 48, _mm512_unpackhi_epi64(a1, a3));
}
TESSERA_INLINE void pack_columns_across_step(const char* x, int64_t stride, int step,
                                             uint32_t* to) {
#pragma GCC unroll 2
  for (int i = 2 * step; i < 2 * step + 2; ++i) {
    __m512i left, right;
    interleave(_mm512_loadu_si512(x + 2 * i * stride), _mm512_loadu_si512(x + (2 * i + 1) * stride),
               left, right);
    _mm512_store_si512(to + i * 16, left);
    _mm512_store_si512(to + (16 + i) * 16, right);
  }
}

// The units of a source, in the order of its rows.
class Units {
 public:
  explicit Units(const PanelSource& x)
      : x_(x), panels_((x.lines + kUnit - 1) / kUnit), units_((x.depths + kUnit - 1) / kUnit) {
    if (x.out != nullptr) left_ = panels_ * units_;
  }
  int64_t left() const { return left_; }
  void next() {
    if (x_.depth_is_contiguous) {
      if (++unit_ == units_) unit_ = 0, ++panel_;
    } else {
      if (++panel_ == panels_) panel_ = 0, ++unit_;
    }
    --left_;
  }
  const char* from() const {
    const int64_t line = panel_ * kUnit, depth = unit_ * kUnit;
    const int64_t first =
        x_.depth_is_contiguous ? line * x_.stride + depth : depth * x_.stride + line;
    return (const char*)x_.data + 2 * first;
  }
  int64_t stride() const { return 2 * x_.stride; }
  uint32_t* to() const { return (uint32_t*)x_.out + (panel_ * units_ + unit_) * kUnitWords; }
  bool whole() const {
    return (panel_ + 1) * kUnit <= x_.lines && (unit_ + 1) * kUnit <= x_.depths;
  }
  // A unit that is not whole, at once.
  void pack_rest() const {
    const int64_t lines = x_.lines - panel_ * kUnit, depths = x_.depths - unit_ * kUnit;
    const BF16* data = (const BF16*)from();
    if (x_.depth_is_contiguous) {
      const Source s{data, x_.stride, lines, depths};
      x_.columns ? pack_columns_along(s, to()) : pack_rows_along(s, to());
    } else {
      const Source s{data, x_.stride, depths, lines};
      x_.columns ? pack_columns_across(s, to()) : pack_rows_across(s, to());
    }
  }

 private:
  PanelSource x_;
  int64_t panels_, units_, panel_ = 0, unit_ = 0, left_ = 0;
};

// Packs a source step by step. Asks for its lines a few units ahead: further ahead, they would be
// gone from L2 again.
class PanelPacker {
 public:
  explicit PanelPacker(const PanelSource& x) : at_(x), asked_(x) {
    left_ = kSteps * at_.left();
    if (left_ == 0) return;
    if (x.depth_is_contiguous) {
      form_ = x.columns ? kColumnsAlong : kRowsAlong;
    } else {
      form_ = x.columns ? kColumnsAcross : kRowsAcross;
    }
    for (int i = 0; i < kUnitsAhead; ++i) ask();
    begin();
  }
  int64_t left() const { return left_; }

  __attribute__((always_inline)) void step() {
    const char* asked = asked_from_;
    if (asked != nullptr) {
#pragma GCC unroll 4
      for (int i = 4 * step_; i < 4 * step_ + 4; ++i)
        _mm_prefetch(asked + i * stride_, _MM_HINT_T1);
    }
    if (whole_) {
      switch (form_) {
        case kRowsAlong: pack_rows_along_step(from_, stride_, step_, to_); break;
        case kRowsAcross: pack_rows_across_step(from_, stride_, step_, to_); break;
        case kColumnsAlong: pack_columns_along_step(from_, stride_, step_, to_); break;
        case kColumnsAcross: pack_columns_across_step(from_, stride_, step_, to_); break;
      }
    }
    --left_;
    if (++step_ == kSteps && left_ > 0) next();
  }

 private:
  static constexpr int kUnitsAhead = 3;
  enum Form { kRowsAlong, kRowsAcross, kColumnsAlong, kColumnsAcross };

  __attribute__((noinline)) void next() {
    at_.next();
    ask();
    begin();
  }
  void ask() {
    if (asked_.left() > 0) asked_.next();
    asked_from_ = asked_.left() > 0 && asked_.whole() ? asked_.from() : nullptr;
  }
  void begin() {
    step_ = 0;
    from_ = at_.from(), stride_ = at_.stride(), to_ = at_.to();
    whole_ = at_.whole();
    if (!whole_) at_.pack_rest();
  }

  Units at_, asked_;
  Form form_ = kRowsAlong;
  const char *from_ = nullptr, *asked_from_ = nullptr;
  int64_t stride_ = 0, left_ = 0;
  uint32_t* to_ = nullptr;
  bool whole_ = false;
  int step_ = 0;
};

// Columns whose depths are rows of the source, a few whole rows at a time, one after the other, as
// the hardware reads them ahead: twice as fast as unit by unit where nothing runs meanwhile.
TESSERA_INLINE void pack_columns_by_rows(const PanelSource& x) {
  const int64_t panels = x.lines / kUnit, units = x.depths / kUnit, stride = 2 * x.stride;
  const int64_t panel_words = (x.depths + kUnit - 1) / kUnit * kUnitWords;
  for (int64_t unit = 0; unit < units; ++unit) {
    const char* from = (const char*)x.data + unit * kUnit * stride;
    uint32_t* to = (uint32_t*)x.out + unit * kUnitWords;
    for (int step = 0; step < kSteps; ++step) {
      for (int64_t panel = 0; panel < panels; ++panel)
        pack_columns_across_step(from + panel * kUnit * 2, stride, step, to + panel * panel_words);
    }
  }
  for (Units at(x); at.left() > 0; at.next()) {
    if (!at.whole()) at.pack_rest();
  }
}

}  // namespace tessera::cpu::amx
