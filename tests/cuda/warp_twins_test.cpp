// What lanes of a warp do together, against the definitions of the PTX manual, each alone.
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

// Four matrices of 8 rows of 8 elements, as 32 rows: element e of row r of matrix m.
uint16_t element(int m, int r, int e) { return static_cast<uint16_t>(m << 8 | r << 4 | e); }

TEST(WarpTwins, LoadMatrixGivesEachLaneItsElements) {
  for (const int transposed : {0, 1}) {
    EmulatedCuda cuda;
    const CUstream stream = cuda.make_stream();
    std::vector<uint16_t> rows;
    for (int n = 0; n < 256; ++n) rows.push_back(element(n / 64, n / 8 % 8, n % 8));
    const uint16_t* on_rows = cuda.upload(rows, stream);
    auto* registers = cuda.allocate<uint32_t>(128);
    ASSERT_EQ(cuda.launch("test_load_matrix", 1, 32, stream, 0, on_rows, registers, transposed, 0),
              0);
    const auto result = cuda.download(registers, 128, stream);
    // PTX ISA, "Warp-level matrix instructions: ldmatrix": thread T of the warp holds of row T / 4
    // the elements 2 (T % 4) and 2 (T % 4) + 1; with .trans the matrix is loaded in column-major
    // format.
    for (int m = 0; m < 4; ++m) {
      for (int lane = 0; lane < 32; ++lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        const uint32_t low = transposed ? element(m, column, row) : element(m, row, column);
        const uint32_t high =
            transposed ? element(m, column + 1, row) : element(m, row, column + 1);
        EXPECT_EQ(result[static_cast<size_t>(m * 32 + lane)], low | high << 16)
            << "matrix " << m << ", lane " << lane;
      }
    }
  }
}

TEST(WarpTwins, LoadMatrixFindsMistakes) {
  struct {
    int mistake;
    const char* words;
  } planted[] = {{1, "race: reads what another thread writes"},
                 {2, "ldmatrix: the address of a row is not a multiple of 16 bytes"},
                 {3, "a matrix instruction without all 32 lanes"}};
  for (const auto& [mistake, words] : planted) {
    EmulatedCuda cuda;
    const CUstream stream = cuda.make_stream();
    const uint16_t* rows = cuda.upload(std::vector<uint16_t>(256), stream);
    auto* registers = cuda.allocate<uint32_t>(128);
    ASSERT_EQ(cuda.launch("test_load_matrix", 1, 32, stream, 0, rows, registers, 0, mistake), 0);
    cuda.stream_synchronize(stream);
    cuda.expect_found(words);
  }
}

TEST(WarpTwins, MultiplyAddIsTheProductOfTheFragments) {
  EmulatedCuda cuda;
  const CUstream stream = cuda.make_stream();
  std::mt19937 random(5);
  float a[16][16], b[16][8], c[16][8];
  const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16) / 8; };
  for (auto& row : a)
    for (float& v : row) v = small();
  for (auto& row : b)
    for (float& v : row) v = small();
  for (auto& row : c)
    for (float& v : row) v = small() * 1.0009765625f;
  const auto pack = [](float low, float high) {
    return std::bit_cast<uint32_t>(low) >> 16 | (std::bit_cast<uint32_t>(high) & 0xffff0000u);
  };
  // PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type", of bf16 and f32: groupID
  // = lane >> 2, threadID_in_group = lane % 4. Element i of A: row groupID for i in {0, 1, 4, 5},
  // else groupID + 8; column threadID * 2 + (i & 1), + 8 from i = 4 on. Of B: row threadID * 2 + (i
  // & 1),
  // + 8 from i = 2 on; column groupID. Of C: row groupID, + 8 from i = 2 on; column threadID * 2 +
  // (i & 1).
  std::vector<uint32_t> of_a(128), of_b(64);
  std::vector<float> of_c(128);
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread = lane % 4;
    for (int i = 0; i < 8; i += 2) {
      const int row = i == 0 || i == 4 ? group : group + 8, column = thread * 2 + (i >= 4 ? 8 : 0);
      of_a[static_cast<size_t>(i / 2 * 32 + lane)] = pack(a[row][column], a[row][column + 1]);
    }
    for (int i = 0; i < 4; i += 2) {
      const int row = thread * 2 + (i >= 2 ? 8 : 0);
      of_b[static_cast<size_t>(i / 2 * 32 + lane)] = pack(b[row][group], b[row + 1][group]);
    }
    for (int i = 0; i < 4; ++i) {
      of_c[static_cast<size_t>(i * 32 + lane)] = c[group + (i >= 2 ? 8 : 0)][thread * 2 + (i & 1)];
    }
  }
  const uint32_t *on_a = cuda.upload(of_a, stream), *on_b = cuda.upload(of_b, stream);
  float* on_c = cuda.upload(of_c, stream);
  ASSERT_EQ(cuda.launch("test_mma", 1, 32, stream, 0, on_a, on_b, on_c), 0);
  const auto d = cuda.download(on_c, 128, stream);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
      double sum = c[row][column];
      for (int k = 0; k < 16; ++k) sum += static_cast<double>(a[row][k]) * b[k][column];
      EXPECT_EQ(d[static_cast<size_t>(i * 32 + lane)], static_cast<float>(sum));
    }
  }
}

TEST(WarpTwins, ShufflesAndVotes) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EmulatedCuda cuda("checked", seed);
    const CUstream stream = cuda.make_stream();
    auto* out = cuda.allocate<int>(40 * 12);
    ASSERT_EQ(cuda.launch("test_warp_functions", 1, 40, stream, 0, out), 0);
    const auto all = cuda.download(out, 40 * 12, stream);
    for (int thread = 0; thread < 40; ++thread) {
      const int lane = thread % 32, first = thread / 32 * 32, lanes = thread < 32 ? 32 : 8;
      const int* at = all.data() + thread * 12;
      EXPECT_EQ(at[0], first + 3);
      EXPECT_EQ(at[1], first + (lane ^ 5));
      EXPECT_EQ(at[2], lane < 2 ? thread : thread - 2);
      EXPECT_EQ(at[3], lane % 8 == 7 ? thread : thread + 1);
      EXPECT_EQ(at[4], first + lane / 4 * 4 + 2);
      unsigned ballot = 0;
      for (int n = 0; n < lanes; n += 3) ballot |= 1u << n;
      EXPECT_EQ(static_cast<unsigned>(at[5]), ballot);
      EXPECT_EQ(at[6], 1);
      EXPECT_EQ(at[7], thread >= 32);
      EXPECT_EQ(at[8], (first + (lane ^ 1)) * 4 + 1);
      EXPECT_EQ(at[9], thread * 2);
      EXPECT_EQ(at[10], std::popcount(static_cast<unsigned>(thread)));
      // To nearest, and to even where it is half way: down the one, up the other.
      EXPECT_EQ(static_cast<unsigned>(at[11]), 0x3f823f80u);
    }
  }
}

TEST(WarpTwins, ApproximationsMayBeOffByUnitsOfTheLastPlace) {
  EmulatedCuda cuda;
  const CUstream stream = cuda.make_stream();
  std::vector<float> x(1000);
  for (size_t n = 0; n < x.size(); ++n) x[n] = 0.01f * static_cast<float>(n + 1);
  x[0] = 0x1p-130f;  // subnormal: taken as zero
  const float* on_x = cuda.upload(x, stream);
  auto* y = cuda.allocate<float>(2000);
  const auto run = [&] {
    EXPECT_EQ(cuda.launch("test_approximations", 4, 256, stream, 0, on_x, y, 1000), 0);
    return cuda.download(y, 2000, stream);
  };
  const auto exact = run();
  EXPECT_EQ(exact[0], 1.0f);
  EXPECT_EQ(exact[1000], -INFINITY);
  for (size_t n = 1; n < 1000; ++n) {
    EXPECT_EQ(exact[n], static_cast<float>(std::exp2(static_cast<double>(x[n]))));
  }
  cuda.approximation(2);
  const auto rough = run();
  int differ = 0;
  for (size_t n = 1; n < 1000; ++n) {
    const int units = std::bit_cast<int>(rough[n]) - std::bit_cast<int>(exact[n]);
    EXPECT_LE(std::abs(units), 2);
    differ += units != 0;
  }
  EXPECT_GT(differ, 500);
}

}  // namespace
}  // namespace tessera::cuda
