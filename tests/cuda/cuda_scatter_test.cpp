// Rows summed by their ids: any number of ids, some of which many rows have.
#include <random>

#include "ops/composite/embedding.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/cuda/graph_run.h"

namespace tessera::cuda {
namespace {

using CudaScatter = CudaTest;

// `count` ids, of which lower ones are more frequent, as words are; some, -1 and `rows`, are of
// other parts of the table.
std::vector<double> ids_of_words(int64_t count, int64_t rows, std::mt19937& random) {
  std::vector<double> ids;
  for (int64_t i = 0; i < count; ++i) {
    const double u = std::uniform_real_distribution(0.0, 1.0)(random);
    const auto id = static_cast<int64_t>(static_cast<double>(rows + 2) * u * u * u);
    ids.push_back(static_cast<double>(id > rows ? -1 : id));
  }
  return ids;
}

TEST_F(CudaScatter, SumsRowsOfAnyNumberOfIds) {
  CudaBackend backend({});
  std::mt19937 random(7);
  const int64_t rows = 11;
  for (const auto& [count, width] : {std::pair<int64_t, int64_t>{1, 3},
                                     {2, 8},
                                     {63, 5},
                                     {64, 8},
                                     {65, 300},
                                     {129, 8},
                                     {1000, 7},
                                     {2048, 8},
                                     {2049, 1},
                                     {4097, 2},
                                     {9000, 8}}) {
    SCOPED_TRACE(cat(count, " x ", width));
    const std::vector<double> ids = ids_of_words(count, rows, random);
    // Integers, whose sums are exact in any order.
    std::vector<double> updates, table, expected;
    for (int64_t i = 0; i < count * width; ++i)
      updates.push_back(static_cast<double>(static_cast<int64_t>(random() % 255) - 127));
    for (int64_t i = 0; i < rows * width; ++i) table.push_back(static_cast<double>(random() % 9));
    expected = table;
    for (int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<int64_t>(ids[static_cast<size_t>(i)]);
      for (int64_t c = 0; c < width && id >= 0 && id < rows; ++c)
        expected[static_cast<size_t>(id * width + c)] +=
            updates[static_cast<size_t>(i * width + c)];
    }
    const GraphResult sums = run_op(
        backend, std::make_shared<EmbeddingBackward>(rows, true, true),
        {{{count}, DType::kI32}, {{count, width}, DType::kBF16}, {{rows, width}, DType::kF32}},
        {ids, updates, table});
    EXPECT_EQ(sums.values, expected);
  }
}

// As rounding shows: rows of an id are summed in pieces of 64, in ascending order, and the pieces
// in order, whatever other ids there are.
TEST_F(CudaScatter, TheOrderOfSumsIsThatOfAnIdsOwnRows) {
  CudaBackend backend({});
  std::mt19937 random(8);
  constexpr int64_t kCount = 700, kPiece = 64;
  const std::vector<double> ids = ids_of_words(kCount, 5, random);
  std::vector<double> updates;
  for (int64_t i = 0; i < kCount; ++i)
    updates.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  std::vector<double> expected;
  int64_t most = 0;
  for (int64_t id = 0; id < 5; ++id) {
    float sum = 0, piece = 0;
    int64_t n = 0;
    for (size_t i = 0; i < kCount; ++i) {
      if (static_cast<int64_t>(ids[i]) != id) continue;
      piece += static_cast<float>(updates[i]);
      if (++n % kPiece == 0) {
        sum += piece;
        piece = 0;
      }
    }
    most = std::max(most, n);
    expected.push_back(sum + piece);
  }
  ASSERT_GT(most, 4 * kPiece);
  EXPECT_EQ(run_op(backend, std::make_shared<EmbeddingBackward>(5, true),
                   {{{kCount}, DType::kI32}, {{kCount, 1}, DType::kF32}}, {ids, updates})
                .values,
            expected);
}

}  // namespace
}  // namespace tessera::cuda
