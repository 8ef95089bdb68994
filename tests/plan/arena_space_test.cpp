#include "plan/arena_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace tessera {
namespace {

struct Block {
  int32_t first, last;
  int64_t bytes, begin = 0;
};

// By definition: past every block of the same time that is in the way, in ascending order.
int64_t lowest_free(std::vector<Block> placed, const Block& block, int64_t from = 0) {
  std::ranges::sort(placed, {}, &Block::begin);
  int64_t offset = from;
  for (const Block& other : placed) {
    if (other.last < block.first || other.first > block.last) continue;
    if (other.begin >= offset + block.bytes) break;
    offset = std::max(offset, other.begin + other.bytes);
  }
  return offset;
}

TEST(ArenaSpace, GivesTheLowestFreeOffsetOfRandomBlocks) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    uint64_t draws = 0;
    auto below = [&](uint64_t n) {
      return static_cast<int32_t>(random_below(seed, 0, draws++, n));
    };
    int32_t nodes = 1 + below(70);
    ArenaSpace space(nodes);
    std::vector<Block> placed;
    for (int i = 0; i < 120; ++i) {
      int32_t a = below(static_cast<uint64_t>(nodes)), b = below(static_cast<uint64_t>(nodes));
      Block block{std::min(a, b), std::max(a, b), 64 * below(6)};
      block.begin = space.lowest_free(block.first, block.last, block.bytes);
      ASSERT_EQ(block.begin, lowest_free(placed, block)) << "seed " << seed << ", block " << i;
      const int64_t from = 64 * below(30), most = 64 * below(60);
      const Block more{block.first, block.last, block.bytes + 64};
      const int64_t found = space.lowest_free(more.first, more.last, more.bytes, from, most);
      const int64_t right = lowest_free(placed, more, from);
      ASSERT_TRUE(right <= most ? found == right : found > most) << found << " " << right;
      space.take(block.first, block.last, block.begin, block.bytes);
      placed.push_back(block);
    }
  }
}

// Layers whose inputs wait for the backward pass, each with values of its own that come and go.
int64_t steps_of_layers(int32_t layers) {
  constexpr int32_t kNodes = 20;
  int32_t nodes = 2 * layers * kNodes;
  ArenaSpace space(nodes);
  auto place = [&](int32_t first, int32_t last, int64_t bytes) {
    space.take(first, last, space.lowest_free(first, last, bytes), bytes);
  };
  for (int32_t at = 0; at + 3 < nodes; ++at) place(at, at + 3, 4096);
  for (int32_t l = 0; l < layers; ++l) place(l * kNodes, nodes - 1 - l * kNodes, 1024);
  for (int32_t at = 0; at + 1 < nodes; ++at) place(at, at + 1, 64);
  return space.steps();
}

TEST(ArenaSpace, WorkGrowsLittleFasterThanTheNumberOfBlocks) {
  // 16 times the blocks; by comparing each with those beside it, 256 times the steps.
  EXPECT_LT(steps_of_layers(256), 16 * 2 * steps_of_layers(16));
}

TEST(ArenaSpace, RefusesToCountBeyond64Bits) {
  ArenaSpace space(4);
  space.take(0, 3, 0, INT64_MAX - 64);
  EXPECT_THROW(space.lowest_free(0, 0, 128), UserError);
  EXPECT_EQ(space.lowest_free(0, 0, 0), 0);
}

}  // namespace
}  // namespace tessera
