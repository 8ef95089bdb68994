#include "train/baselines.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/interruption.h"
#include "base/random.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/data/memory_tokens.h"

namespace tessera {
namespace {

DocumentSource texts(std::vector<std::string> documents) {
  return [documents, next = size_t{0}](std::string& document) mutable {
    if (next == documents.size()) return false;
    document = documents[next++];
    return true;
  };
}

// Ids below `vocab`, skewed and each depending on the one before.
std::vector<uint16_t> chain(uint64_t seed, size_t count, uint64_t vocab) {
  std::vector<uint16_t> ids;
  uint64_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    last = (last * 3 + random_below(seed, 0, i, 1 + random_below(seed, 1, i, vocab))) % vocab;
    ids.push_back(static_cast<uint16_t>(last));
  }
  return ids;
}

// p(b|a) straight from the formula in the header.
struct PlainBigram {
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> totals;
  std::map<int, std::set<int>> followers, predecessors;
  double vocab, discount;

  PlainBigram(const std::vector<uint16_t>& ids, double v) : vocab(v) {
    for (size_t i = 1; i < ids.size(); ++i) {
      int a = ids[i - 1], b = ids[i];
      ++pairs[{a, b}];
      ++totals[a];
      followers[a].insert(b);
      predecessors[b].insert(a);
    }
    double once = 0, twice = 0;
    for (const auto& [pair, n] : pairs) {
      once += n == 1;
      twice += n == 2;
    }
    discount = (once + 1) / (once + 2 * twice + 2);
  }
  double operator()(int a, int b) {
    double q = (static_cast<double>(predecessors[b].size()) + 0.5) /
               (static_cast<double>(pairs.size()) + vocab / 2);
    if (!totals.contains(a)) return q;
    double seen = pairs.contains({a, b}) ? pairs[{a, b}] - discount : 0;
    return (seen + discount * static_cast<double>(followers[a].size()) * q) / totals[a];
  }
};

TEST(Baselines, EqualTheirFormulas) {
  constexpr int kVocab = 50;
  auto training = chain(1, 600, kVocab - 3), validation = chain(2, 300, kVocab);  // new ids occur
  PlainBigram bigram(training, kVocab);
  for (int a : {0, 1, 46, 49}) {
    double sum = 0;
    for (int b = 0; b < kVocab; ++b) sum += bigram(a, b);
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  double unigram_bits = 0, bigram_bits = 0;
  for (size_t i = 1; i < validation.size(); ++i) {
    double count = static_cast<double>(std::ranges::count(training, validation[i]));
    unigram_bits -= std::log2((count + 0.5) / (600 + 0.5 * kVocab));
    bigram_bits -= std::log2(bigram(validation[i - 1], validation[i]));
  }
  auto result = measure_baselines(MemoryTokens(training).view(), MemoryTokens(validation).view(),
                                  kVocab, texts({std::string(1000, 'a'), std::string(200, 'b')}));
  EXPECT_NEAR(result.unigram_bits_per_byte, unigram_bits / 1200, 1e-12);
  EXPECT_NEAR(result.bigram_bits_per_byte, bigram_bits / 1200, 1e-12);
}

TEST(Baselines, ABigramLearnsWhatAUnigramCannot) {
  std::vector<uint16_t> cycle;
  for (size_t i = 0; i < 8000; ++i) cycle.push_back(static_cast<uint16_t>(i % 8));
  auto result = measure_baselines(MemoryTokens(cycle).view(), MemoryTokens(cycle).view(), 8,
                                  texts({std::string(8000, 'a')}));
  EXPECT_NEAR(result.unigram_bits_per_byte, 3, 0.01);
  EXPECT_LT(result.bigram_bits_per_byte, 0.01);
}

TEST(Baselines, GzipIsThatOfTheWholeText) {
  std::string noise(100000, '\0');
  for (size_t i = 0; i < noise.size(); ++i)
    noise[i] = static_cast<char>(random_below(5, 0, i, 256));
  std::vector<uint16_t> ids{0, 1};
  auto gzip = [&](const DocumentSource& text) {
    return measure_baselines(MemoryTokens(ids).view(), MemoryTokens(ids).view(), 2, text)
        .gzip_bits_per_byte;
  };
  EXPECT_NEAR(gzip(texts({noise})), 8, 0.01);
  EXPECT_EQ(gzip(texts({noise.substr(0, 3), noise.substr(3, 70000), noise.substr(70003)})),
            gzip(texts({noise})));
  EXPECT_LT(gzip(texts({noise.substr(0, 10000), noise.substr(0, 10000)})),
            4.2);  // second is a copy
}

TEST(Baselines, GzipIsLevel9) {
  std::string text;  // words of a small vocabulary: what a level below 9 packs worse
  for (uint64_t i = 0; i < 30000; ++i) text += cat("w", random_below(9, 0, i, 1000) % 300, ' ');
  uLongf packed = compressBound(text.size());
  std::vector<Bytef> buffer(packed);
  ASSERT_EQ(compress2(buffer.data(), &packed, reinterpret_cast<const Bytef*>(text.data()),
                      text.size(), 9),
            Z_OK);
  std::vector<uint16_t> ids{0, 1};
  double bits =
      measure_baselines(MemoryTokens(ids).view(), MemoryTokens(ids).view(), 2, texts({text}))
          .gzip_bits_per_byte;
  // The same stream in gzip's frame of 18 bytes instead of zlib's of 6.
  EXPECT_DOUBLE_EQ(bits, 8.0 * static_cast<double>(packed + 12) / static_cast<double>(text.size()));
}

TEST(Baselines, EndWhenThatIsRequested) {
  std::vector<uint16_t> ids{0, 1};
  request_interruption();
  EXPECT_THROW(
      measure_baselines(MemoryTokens(ids).view(), MemoryTokens(ids).view(), 2, texts({"ab"})),
      Interrupted);
  clear_interruption();
}

TEST(Baselines, TinyTrainingDataAndNoTextAreHandled) {
  std::vector<uint16_t> none, one{1}, some{0, 1, 0};
  auto result =
      measure_baselines(MemoryTokens(none).view(), MemoryTokens(some).view(), 4, texts({"ab"}));
  EXPECT_DOUBLE_EQ(result.unigram_bits_per_byte, 2);  // two predictions of 2 bits over two bytes
  EXPECT_DOUBLE_EQ(result.bigram_bits_per_byte, 2);
  EXPECT_DOUBLE_EQ(
      measure_baselines(MemoryTokens(one).view(), MemoryTokens(some).view(), 4, texts({"ab"}))
          .bigram_bits_per_byte,
      2);
  expect_contains(user_error([&] {
                    measure_baselines(MemoryTokens(some).view(), MemoryTokens(none).view(), 4,
                                      texts({}));
                  }),
                  "validation text is empty");
  EXPECT_THROW(
      measure_baselines(MemoryTokens(some).view(), MemoryTokens(some).view(), 1, texts({"ab"})),
      InternalError);
}

}  // namespace
}  // namespace tessera
