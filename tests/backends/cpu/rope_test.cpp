#include "backends/cpu/kernels/rope.h"

#include "base/error.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

struct Shape4 {
  int64_t batch, tokens, heads, width, rotary;
};
constexpr Shape4 kShapes[] = {{1, 1, 1, 2, 2},    {2, 3, 1, 5, 2},   {1, 7, 3, 64, 64},
                              {2, 5, 4, 80, 20},  {3, 4, 2, 34, 34}, {1, 9, 5, 128, 6},
                              {2, 70, 3, 96, 96}, {1, 3, 2, 11, 0}};

struct Tables {
  Tensor cos, sin;
  explicit Tables(const Shape4& s)
      : cos(DType::kF32, s.tokens * s.rotary / 2), sin(DType::kF32, s.tokens * s.rotary / 2) {
    int64_t half = s.rotary / 2;
    for (int64_t i = 0; i < cos.size(); ++i) {
      double angle = static_cast<double>(i / half + 3) *
                     std::pow(10000.0, -static_cast<double>(i % half) / static_cast<double>(half));
      cos.set(i, std::cos(angle));
      sin.set(i, std::sin(angle));
    }
  }
};

Rope arguments(const Shape4& s, const Tables& tables, const Tensor& x, Tensor& y, bool inverse) {
  return {.dtype = x.dtype(),
          .x = x.data(),
          .y = y.data(),
          .cos = tables.cos.f32(),
          .sin = tables.sin.f32(),
          .batch = s.batch,
          .tokens = s.tokens,
          .heads = s.heads,
          .width = s.width,
          .rotary = s.rotary,
          .x_stride = s.heads * s.width,
          .y_stride = s.heads * s.width,
          .inverse = inverse};
}

template <class Round>
Doubles compute(const Shape4& s, const Tables& tables, const Tensor& x, bool inverse, Round round) {
  int64_t half = s.rotary / 2;
  Doubles y(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t e = i % s.width, t = i / (s.heads * s.width) % s.tokens;
    double value = x[i];
    if (e < s.rotary) {
      bool low = e < half;
      int64_t pair = t * half + e % half;
      double sine = (low != inverse) ? -tables.sin[pair] : tables.sin[pair];
      value = round(round(value * tables.cos[pair]) + round(x[low ? i + half : i - half] * sine));
    }
    y[static_cast<size_t>(i)] = value;
  }
  return y;
}

TEST(Rope, MatchesFormula) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (const Shape4& s : kShapes) {
      for (bool inverse : {false, true}) {
        SCOPED_TRACE(cat(s.batch, " ", s.tokens, " ", s.heads, " ", s.width, " ", s.rotary));
        Tables tables(s);
        Tensor x = Tensor::random(dtype, s.batch * s.tokens * s.heads * s.width, 5);
        Tensor y = same_for_all_threads([&](ThreadPool& pool) {
          Tensor out(dtype, x.size(), 7);
          rope(arguments(s, tables, x, out, inverse), isa, pool);
          return out;
        });
        expect_as_good(y,
                       compute(s, tables, x, inverse, [&](double v) { return rounded(dtype, v); }),
                       compute(s, tables, x, inverse, [](double v) { return v; }));
        Tensor in_place = x;
        rope(arguments(s, tables, in_place, in_place, inverse), isa, pool_of(2));
        EXPECT_TRUE(in_place == y);
      }
    }
  });
}

// q and k rotated inside a packed [tokens, (2 + 1 + 1) heads] buffer; v stays as it is.
TEST(Rope, RotatesPartsOfAPackedBuffer) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Shape4 q{2, 5, 2, 18, 14}, k{2, 5, 1, 18, 14};
    int64_t stride = 4 * 18, tokens = 10;
    Tables tables(q);
    Tensor packed = Tensor::random(dtype, tokens * stride, 6), original = packed;
    for (auto [s, offset] : {std::pair{q, 0}, std::pair{k, 36}}) {
      Rope args = arguments(s, tables, packed, packed, false);
      args.x = args.y = packed.at(offset);
      args.x_stride = args.y_stride = stride;
      rope(args, isa, pool_of(2));
    }
    for (auto [s, offset] : {std::pair{q, int64_t{0}}, std::pair{k, int64_t{36}}}) {
      int64_t part = s.heads * s.width;
      Tensor x(dtype, tokens * part), y(dtype, tokens * part);
      for (int64_t i = 0; i < x.size(); ++i)
        x.set(i, original[i / part * stride + offset + i % part]);
      rope(arguments(s, tables, x, y, false), isa, pool_of(1));
      for (int64_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(packed[i / part * stride + offset + i % part], y[i]);
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 54; i < stride; ++i)
        ASSERT_EQ(packed[t * stride + i], original[t * stride + i]);
    }
  });
}

TEST(Rope, InverseUndoesIt) {
  for (Isa isa : isas_here()) {
    Shape4 s{2, 6, 3, 40, 40};
    Tables tables(s);
    Tensor x = Tensor::random(DType::kF32, 2 * 6 * 3 * 40, 5), y = x;
    rope(arguments(s, tables, y, y, false), isa, pool_of(1));
    rope(arguments(s, tables, y, y, true), isa, pool_of(1));
    for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-6);
  }
}

TEST(Rope, RefusesOddRotaryDims) {
  Shape4 s{1, 1, 1, 8, 3};
  Tables tables(s);
  Tensor x(DType::kF32, 8);
  EXPECT_THROW(rope(arguments(s, tables, x, x, false), Isa::kPortable, pool_of(1)), InternalError);
  s.rotary = 10;
  EXPECT_THROW(rope(arguments(s, tables, x, x, false), Isa::kPortable, pool_of(1)), InternalError);
}

}  // namespace
}  // namespace tessera::cpu
