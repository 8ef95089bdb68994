#include "data/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "data/packed_dataset.h"
#include "data/synthetic_tokens.h"
#include "data/token_cache_format.h"
#include "tests/base/error_expectation.h"
#include "tests/data/packed_text.h"

namespace tessera {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> values(256);
  values[0] = magic;
  values[1] = version;
  values[2] = count;
  return bytes_of(values);
}

std::shared_ptr<MemorySource> source(std::string content) {
  return std::make_shared<MemorySource>(std::move(content), "train.bin");
}

std::vector<int32_t> ids_of(const TokenFile& file) {
  std::vector<int32_t> ids;
  file.tokens().for_each([&](int32_t id) { ids.push_back(id); });
  return ids;
}

TEST(TokenFile, FlatIdsOfTwoAndFourBytes) {
  std::vector<uint16_t> narrow;
  for (int i = 0; i < 10000; ++i) narrow.push_back(static_cast<uint16_t>(i * 7 % 50257));
  narrow[9999] = 65535;
  TokenFile file(source(bytes_of(narrow)), 65536);
  EXPECT_EQ(file.width(), 2);
  EXPECT_FALSE(file.has_header());
  EXPECT_EQ(ids_of(file), std::vector<int32_t>(narrow.begin(), narrow.end()));
  const std::vector<uint32_t> wide{0, 128255, 70000};
  EXPECT_EQ(ids_of(TokenFile(source(bytes_of(wide)), 128256)),
            (std::vector<int32_t>{0, 128255, 70000}));
  EXPECT_EQ(ids_of(TokenFile(source(bytes_of(std::vector<uint32_t>{5})), 100, 4)),
            std::vector<int32_t>{5});
  EXPECT_EQ(TokenFile(source("ab"), 200000, 2).tokens().count(), 1);
}

TEST(TokenFile, AShardOfPreparedDataIsMoreThanIds) {
  TokenCacheTrailer trailer;
  const std::string shard =
      std::string(64, 'a') + std::string(reinterpret_cast<const char*>(&trailer), sizeof trailer);
  expect_contains(user_error([&] { TokenFile(source(shard), 65536); }),
                  "give the directory that `tessera data prepare` wrote");
}

TEST(TokenFile, HeadersAreKnownByTheirMagicNumber) {
  const std::vector<uint16_t> narrow{50256, 1, 2};
  TokenFile small(source(header(20240520, 1, 3) + bytes_of(narrow)), 128256);
  EXPECT_EQ(small.width(), 2);
  EXPECT_TRUE(small.has_header());
  EXPECT_EQ(ids_of(small), (std::vector<int32_t>{50256, 1, 2}));
  const std::vector<uint32_t> wide{128000, 7};
  TokenFile large(source(header(20240801, 7, 2) + bytes_of(wide)), 128256);
  EXPECT_EQ(large.width(), 4);
  EXPECT_EQ(ids_of(large), (std::vector<int32_t>{128000, 7}));
  EXPECT_EQ(TokenFile(source(header(20240520, 1, 0)), 9).tokens().count(), 0);
}

TEST(TokenFile, SizesAndHeadersThatDoNotFitAreErrors) {
  auto refused = [](std::string content, int64_t vocab_size = 50257, int width = 0) {
    return user_error([&] { TokenFile(source(std::move(content)), vocab_size, width); });
  };
  expect_contains(refused(""), "token file 'train.bin' is empty");
  expect_contains(refused("abc"), "has 3 bytes, no multiple of the 2 of an id");
  expect_contains(refused("abcdef", 70000), "has 6 bytes, no multiple of the 4 of an id");
  expect_contains(refused(header(20240520, 2, 0)),
                  "magic number 20240520 and version 2, known is version 1");
  expect_contains(refused(header(20240801, 1, 0)), "known is version 7");
  expect_contains(refused(header(20240520, 1, 2) + "ab"), "its header counts 2 ids of 2 bytes");
  expect_contains(refused(header(20240520, 1, 1) + "abc"), "has 1027 bytes; its header counts 1");
  expect_contains(refused(header(20240801, 7, 1) + "ab"), "counts 1 ids of 4 bytes");
  expect_contains(refused(header(20240520, 1, -1)), "counts -1 ids");
  expect_contains(refused(header(20240520, 1, 0).substr(0, 1023)), "has 1023 bytes");
  expect_contains(refused(header(20240520, 1, 0).substr(0, 12)), "has 12 bytes");
  expect_contains(refused(header(20240520, 1, 0), 9, 4), "has ids of 2 bytes, not of 4");
}

TEST(TokenFile, IdsOutsideTheVocabularyAreFoundWhenTheyAreRead) {
  std::vector<uint16_t> narrow(10000, 99);
  narrow[8765] = 100;
  TokenFile file(source(bytes_of(narrow)), 100);
  std::vector<int32_t> ids(1000);
  file.tokens().copy(0, ids);
  std::string message = user_error([&] { file.tokens().copy(8000, ids); });
  expect_contains(message,
                  "'train.bin': token 8765 (at byte 17530) is 100, the vocabulary has 100");
  TokenFile wide(source(header(20240801, 7, 2) + bytes_of(std::vector<uint32_t>{1, 4000000000})),
                 128256);
  expect_contains(user_error([&] { ids_of(wide); }), "token 1 (at byte 1028) is 4000000000");
  expect_lacks(user_error([&] { ids_of(wide); }), "ids of 4 bytes");
  TokenFile guessed(source(bytes_of(narrow)), 65600);
  expect_contains(
      user_error([&] { ids_of(guessed); }),
      "(it is read as ids of 4 bytes, since the vocabulary has more than 65536 entries)");
}

TEST(TokenFile, BlocksAreTheFullWindowsOfADataSet) {
  for (int64_t count : {9, 10, 12, 13, 14}) {
    std::vector<uint16_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<uint16_t>(i));
    TokenFile file(source(bytes_of(ids)), 100);
    const int64_t context = 4, blocks = (count - 1) / context;
    PackedDataset windows(file.tokens(), context, 0, "train.bin");
    std::vector<int32_t> inputs(4), targets(4);
    for (int32_t i = 0; i < blocks; ++i) {
      EXPECT_EQ(windows.sample(i, {inputs, targets, {}}), context);
      EXPECT_EQ(inputs, (std::vector<int32_t>{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3}));
      EXPECT_EQ(targets, (std::vector<int32_t>{4 * i + 1, 4 * i + 2, 4 * i + 3, 4 * i + 4}));
    }
    EXPECT_EQ(windows.samples(), blocks + ((count - 1) % context != 0));
  }
}

TEST(SyntheticTokens, AreAFunctionOfSeedSequenceAndPosition) {
  const SyntheticTokens all(7, 50, 33, 1000), longer(7, 9, 100, 1000), other(8, 50, 33, 1000);
  EXPECT_EQ(all.tokens().count(), 50 * 33);
  std::vector<int32_t> ids(50 * 33), again(33), third(33);
  all.tokens().copy(0, ids);
  for (int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 1000);
  for (int64_t s = 0; s < 9; ++s) {
    longer.tokens().copy(s * 100, again);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), ids.begin() + s * 33)) << s;
  }
  for (size_t i = 0; i < ids.size(); i += 17) {
    all.tokens().copy(static_cast<int64_t>(i), std::span(third).first(1));
    EXPECT_EQ(third[0], ids[i]);
  }
  other.tokens().copy(0, third);
  EXPECT_FALSE(std::equal(third.begin(), third.end(), ids.begin()));
  EXPECT_EQ(PackedDataset(all.tokens(), 33, 0, "synthetic").samples(), 50);
}

TEST(SyntheticTokens, AreUniform) {
  const SyntheticTokens tokens(1, 100, 1000, 16);
  std::vector<int64_t> counts(16);
  tokens.tokens().for_each([&](int32_t id) { ++counts[static_cast<size_t>(id)]; });
  // 6250 each, standard deviation 77.
  for (int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 6250, 5 * 77);
}

}  // namespace
}  // namespace tessera
