#include "data/best_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "base/random.h"

namespace tessera {
namespace {

std::vector<PackedWindow> pack_best_fit(std::span<const int64_t> lengths, int64_t context,
                                        int64_t buffer) {
  BestFitPacker packer(context, buffer);
  std::vector<PackedWindow> windows;
  for (int64_t length : lengths) packer.add(length, windows);
  packer.finish(windows);
  return windows;
}

// Lengths as those of web pages: log-normal, median 350 tokens, a tail beyond the context.
std::vector<int64_t> web_lengths(size_t count) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < count; ++i)
    lengths.push_back(static_cast<int64_t>(std::exp(5.86 + 1.1 * random_normal(1, 2, i))));
  return lengths;
}

// Every token of every document is in one window once, and no piece is shorter than it must be.
void expect_exact_cover(const std::vector<int64_t>& lengths, int64_t context,
                        const std::vector<PackedWindow>& windows) {
  std::map<int64_t, std::map<int64_t, int64_t>> pieces;  // by document and begin
  for (const PackedWindow& window : windows) {
    int64_t length = 0;
    for (size_t i = 0; i < window.pieces.size(); ++i) {
      const PackedPiece& piece = window.pieces[i];
      length += piece.length;
      EXPECT_TRUE(pieces[piece.document].emplace(piece.begin, piece.length).second);
      if (i > 0) {
        EXPECT_LT(window.pieces[i - 1].document, piece.document);
      }
    }
    EXPECT_EQ(length, window.length);
    EXPECT_TRUE(length > 0 && length <= context);
  }
  for (size_t d = 0; d < lengths.size(); ++d) {
    int64_t begin = 0;
    for (auto [at, length] : pieces[static_cast<int64_t>(d)]) {
      EXPECT_EQ(at, begin);
      EXPECT_EQ(length, std::min(context, lengths[d] - begin));
      begin += length;
    }
    EXPECT_EQ(begin, lengths[d]);
  }
  EXPECT_EQ(pieces.size(), lengths.size());
}

double fill(const std::vector<PackedWindow>& windows, int64_t context) {
  double tokens = 0;
  for (const PackedWindow& window : windows) tokens += static_cast<double>(window.length);
  return tokens / static_cast<double>(context) / static_cast<double>(windows.size());
}

TEST(BestFit, TakesTheWindowWithTheLeastRoom) {
  const std::vector<PackedWindow> windows =
      pack_best_fit(std::vector<int64_t>{3, 6, 5, 4, 7, 2, 1}, 10, 100);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].pieces, (std::vector<PackedPiece>{{0, 0, 3}, {4, 0, 7}}));
  EXPECT_EQ(windows[1].pieces, (std::vector<PackedPiece>{{1, 0, 6}, {3, 0, 4}}));
  EXPECT_EQ(windows[2].pieces, (std::vector<PackedPiece>{{2, 0, 5}, {5, 0, 2}, {6, 0, 1}}));
}

TEST(BestFit, LongDocumentsAreCutAndEmptyOnesLeftOut) {
  const std::vector<PackedWindow> windows =
      pack_best_fit(std::vector<int64_t>{25, 0, 10, 5}, 10, 100);
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[0].pieces, (std::vector<PackedPiece>{{0, 0, 10}}));
  EXPECT_EQ(windows[1].pieces, (std::vector<PackedPiece>{{0, 10, 10}}));
  EXPECT_EQ(windows[2].pieces, (std::vector<PackedPiece>{{2, 0, 10}}));
  EXPECT_EQ(windows[3].pieces, (std::vector<PackedPiece>{{0, 20, 5}, {3, 0, 5}}));
  EXPECT_TRUE(pack_best_fit({}, 10, 1).empty());
}

TEST(BestFit, CoversEveryTokenOnceForAnyBuffer) {
  std::vector<int64_t> lengths = web_lengths(3000);
  lengths[5] = 0;
  lengths[6] = 2048;
  lengths[7] = 4096;
  for (int64_t buffer : {1, 2, 7, 64, 1000, 100000}) {
    for (int64_t context : {1, 100, 2048}) {
      if (context == 1 && buffer != 7) continue;
      expect_exact_cover(lengths, context, pack_best_fit(lengths, context, buffer));
    }
  }
}

TEST(BestFit, PackingInTurnsIsPackingAtOnce) {
  const std::vector<int64_t> lengths = web_lengths(1000);
  BestFitPacker packer(512, 64);
  std::vector<PackedWindow> all = pack_best_fit(lengths, 512, 64), next;
  size_t seen = 0;
  for (int64_t length : lengths) {
    next.clear();
    packer.add(length, next);
    for (const PackedWindow& window : next) EXPECT_EQ(window.pieces, all[seen++].pieces);
  }
  next.clear();
  packer.finish(next);
  for (const PackedWindow& window : next) EXPECT_EQ(window.pieces, all[seen++].pieces);
  EXPECT_EQ(seen, all.size());
}

TEST(BestFit, FillsWindows) {
  const std::vector<int64_t> lengths = web_lengths(50000);
  double last = 0;
  for (int64_t buffer : {64, 1024, 16384}) {
    const double filled = fill(pack_best_fit(lengths, 2048, buffer), 2048);
    RecordProperty("buffer_" + std::to_string(buffer), std::to_string(filled));
    EXPECT_GT(filled, last);
    last = filled;
  }
  EXPECT_GT(last, 0.99);
}

}  // namespace
}  // namespace tessera
