#include "backends/cpu/kernels/embedding.h"

#include "base/error.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

struct Case {
  int64_t tokens, vocabulary, width;
};
constexpr Case kCases[] = {{1, 1, 1}, {7, 3, 5}, {100, 50, 16}, {333, 130, 300}, {40, 1000, 17}};

// Some ids far more frequent than others, some absent.
std::vector<int32_t> ids_of(const Case& c) {
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < c.tokens; ++n) {
    double u = random_uniform(1, stream_of("ids"), static_cast<uint64_t>(n));
    ids.push_back(static_cast<int32_t>(u * u * u * static_cast<double>(c.vocabulary)));
  }
  return ids;
}

TEST(Embedding, ForwardCopiesRows) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : kCases) {
      std::vector<int32_t> ids = ids_of(c);
      Tensor table = Tensor::random(dtype, c.vocabulary * c.width, 2);
      Tensor y = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(dtype, c.tokens * c.width, 7);
        embedding_forward({.dtype = dtype,
                           .ids = ids.data(),
                           .table = table.data(),
                           .y = out.data(),
                           .tokens = c.tokens,
                           .vocabulary = c.vocabulary,
                           .width = c.width},
                          pool);
        return out;
      });
      for (int64_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], table[ids[static_cast<size_t>(i / c.width)] * c.width + i % c.width]);
      }
    }
  }
}

Tensor run_backward(const Case& c, const std::vector<int32_t>& ids, const Tensor& dy, Isa isa,
                    ThreadPool& pool, bool partial = false) {
  Tensor dtable(DType::kF32, c.vocabulary * c.width, 7);
  std::vector<int32_t> workspace(
      static_cast<size_t>(embedding_backward_workspace(c.tokens, c.vocabulary) / 4), 99);
  embedding_backward({.dtype = dy.dtype(),
                      .ids = ids.data(),
                      .dy = dy.data(),
                      .dtable = dtable.f32(),
                      .workspace = workspace.data(),
                      .tokens = c.tokens,
                      .vocabulary = c.vocabulary,
                      .width = c.width,
                      .partial = partial},
                     isa, pool);
  return dtable;
}

// Sums are defined to the bit: f32, ascending tokens. Rows without a token become zero.
TEST(Embedding, BackwardSumsInTokenOrder) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (const Case& c : kCases) {
      std::vector<int32_t> ids = ids_of(c);
      Tensor dy = Tensor::random(dtype, c.tokens * c.width, 3);
      Tensor dtable = same_for_all_threads(
          [&](ThreadPool& pool) { return run_backward(c, ids, dy, isa, pool); });
      std::vector<float> expected(static_cast<size_t>(c.vocabulary * c.width));
      for (int64_t i = 0; i < dy.size(); ++i) {
        int64_t row = ids[static_cast<size_t>(i / c.width)];
        expected[static_cast<size_t>(row * c.width + i % c.width)] += static_cast<float>(dy[i]);
      }
      for (int64_t i = 0; i < dtable.size(); ++i) {
        ASSERT_EQ(dtable.f32()[i], expected[static_cast<size_t>(i)]);
      }
    }
  });
}

// A part [begin, end) of a table: its rows as if the whole were here, zeros for the other ids.
TEST(Embedding, PartsGiveTheirRowsAndTheirGradients) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (const Case& whole : kCases) {
      std::vector<int32_t> ids = ids_of(whole);
      Tensor table = Tensor::random(dtype, whole.vocabulary * whole.width, 2);
      Tensor dy = Tensor::random(dtype, whole.tokens * whole.width, 3);
      Tensor dtable = run_backward(whole, ids, dy, isa, pool_of(1));
      int64_t middle = whole.vocabulary / 3;
      for (auto [begin, end] : {std::pair{int64_t{0}, middle}, {middle, whole.vocabulary}}) {
        Case part{whole.tokens, end - begin, whole.width};
        std::vector<int32_t> local = ids;
        for (int32_t& id : local) id -= static_cast<int32_t>(begin);
        Tensor y = same_for_all_threads([&](ThreadPool& pool) {
          Tensor out(dtype, part.tokens * part.width, 7);
          embedding_forward({.dtype = dtype,
                             .ids = local.data(),
                             .table = table.at(begin * part.width),
                             .y = out.data(),
                             .tokens = part.tokens,
                             .vocabulary = part.vocabulary,
                             .width = part.width,
                             .partial = true},
                            pool);
          return out;
        });
        for (int64_t i = 0; i < y.size(); ++i) {
          int64_t id = ids[static_cast<size_t>(i / part.width)];
          bool here = id >= begin && id < end;
          ASSERT_EQ(y[i], here ? table[id * part.width + i % part.width] : 0);
        }
        Tensor gradient = same_for_all_threads(
            [&](ThreadPool& pool) { return run_backward(part, local, dy, isa, pool, true); });
        for (int64_t i = 0; i < gradient.size(); ++i)
          ASSERT_EQ(gradient[i], dtable[begin * part.width + i]);
      }
    }
  });
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  Case c{3, 4, 2};
  for (int32_t bad : {-1, 4}) {
    std::vector<int32_t> ids{0, bad, 1};
    Tensor table(DType::kF32, 8), y(DType::kF32, 6);
    EXPECT_THROW(embedding_forward({.dtype = DType::kF32,
                                    .ids = ids.data(),
                                    .table = table.data(),
                                    .y = y.data(),
                                    .tokens = 3,
                                    .vocabulary = 4,
                                    .width = 2},
                                   pool_of(2)),
                 InternalError);
    EXPECT_THROW(run_backward(c, ids, y, Isa::kPortable, pool_of(2)), InternalError);
  }
}

}  // namespace
}  // namespace tessera::cpu
