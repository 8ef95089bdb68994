// The index of a token cache: its documents, and what of them is learned.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "base/ignore_index.h"
#include "base/random.h"
#include "data/token_cache.h"
#include "data/token_cache_format.h"
#include "data/token_cache_writer.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

std::vector<Record> rows_of_all_sizes(size_t count, bool with_labels) {
  std::vector<Record> rows(count);
  for (uint64_t r = 0; r < count; ++r) {
    const uint64_t size = 1 + random_below(5, 0, r, r % 40 == 13 ? 30000 : 200);
    for (uint64_t i = 0; i < size; ++i)
      rows[r].ids.push_back(static_cast<int32_t>(random_below(5, r + 1, i, 300)));
    // Rows without labels are between those that have some.
    if (!with_labels || r % 3 == 0) continue;
    rows[r].labels = rows[r].ids;
    for (size_t i = 0; i < size / 2; ++i) rows[r].labels[i] = kIgnoreIndex;
  }
  return rows;
}

class TokenDocumentsTest : public testing::Test {
 protected:
  TokenCache build(const std::vector<Record>& rows, int threads = 1) {
    TokenCacheJob job;
    job.name = "'rows'";
    job.fingerprint = 42;
    job.vocab_size = 300;
    job.records = [&rows, next = size_t{0}](Record& record) mutable {
      if (next == rows.size()) return false;
      record = rows[next++];
      return true;
    };
    ThreadPool pool(threads);
    return build_token_cache(path_, job, pool);
  }
  // Writes the file again with other offsets, and hashes that fit.
  void write_offsets(const std::vector<uint64_t>& offsets) {
    std::string content = read_file(path_);
    TokenCacheTrailer trailer;
    std::memcpy(&trailer, content.data() + content.size() - sizeof trailer, sizeof trailer);
    content.resize(trailer.offsets_at);
    const std::string bytes(reinterpret_cast<const char*>(offsets.data()), offsets.size() * 8);
    trailer.documents = offsets.size() - 1;
    trailer.offsets_hash = hash_text(bytes);
    trailer.trailer_hash = trailer.own_hash();
    content += bytes;
    content.append(reinterpret_cast<const char*>(&trailer), sizeof trailer);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ScratchDirectory directory_;
  std::filesystem::path path_ = directory_ / "tokens.bin";
};

void expect_rows(const TokenCache& cache, const std::vector<Record>& rows) {
  ASSERT_EQ(cache.documents(), std::ssize(rows));
  int64_t begin = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const TokenRange range = cache.document(static_cast<int64_t>(r));
    ASSERT_EQ(range, (TokenRange{begin, begin + std::ssize(rows[r].ids)}));
    begin = range.end;
    std::vector<int32_t> ids(rows[r].ids.size()), targets(ids.size());
    cache.tokens().copy(range.begin, ids);
    cache.tokens().copy_targets(range.begin, targets);
    ASSERT_EQ(ids, rows[r].ids);
    ASSERT_EQ(targets, rows[r].labels.empty() ? rows[r].ids : rows[r].labels);
  }
  EXPECT_EQ(cache.tokens().count(), begin);
  int64_t visited = 0;
  cache.document_view().for_each([&](TokenRange range) {
    EXPECT_EQ(range.length(), std::ssize(rows[static_cast<size_t>(visited)].ids));
    ++visited;
  });
  EXPECT_EQ(visited, std::ssize(rows));
}

TEST_F(TokenDocumentsTest, RowsComeBackWithTheirLabelsForAnyNumberOfThreads) {
  std::optional<uint64_t> plain;
  for (bool with_labels : {false, true}) {
    const auto rows = rows_of_all_sizes(1200, with_labels);
    const auto cache = build(rows);
    EXPECT_EQ(cache.all_learned(), !with_labels);
    EXPECT_EQ(cache.text_bytes(), 0);
    expect_rows(cache, rows);
    const std::string expected = read_file(path_);
    for (int threads : {2, 3, 5}) {
      build(rows, threads);
      EXPECT_TRUE(read_file(path_) == expected) << threads << " threads";
    }
    if (plain) {
      EXPECT_NE(cache.hash(), *plain);  // the same ids
    }
    plain = cache.hash();
  }
}

// The first token that is not learned stands before, at and behind the end of a word of bits.
TEST_F(TokenDocumentsTest, BitsBeginWhereTheyAreNeeded) {
  for (size_t size : {1, 63, 64, 65, 128, 200}) {
    for (size_t first : {size_t{0}, size_t{1}, size_t{62}, size_t{63}, size_t{64}, size_t{127}}) {
      if (first >= size) continue;
      SCOPED_TRACE(cat(size, " tokens, from ", first, " on"));
      std::vector<Record> rows(3);
      for (auto& row : rows) row.ids.assign(size, 7);
      rows[1].labels.assign(size, kIgnoreIndex);
      for (size_t i = 0; i < first; ++i) rows[1].labels[i] = 7;
      expect_rows(build(rows), rows);
    }
  }
}

TEST_F(TokenDocumentsTest, TargetsAreReadFromAnyPlace) {
  const auto rows = rows_of_all_sizes(300, true);
  const auto cache = build(rows);
  std::vector<int32_t> all(static_cast<size_t>(cache.tokens().count()));
  cache.tokens().copy_targets(0, all);
  for (size_t begin = 0; begin + 70000 < all.size(); begin += 4093) {
    for (size_t size : {size_t{1}, size_t{7}, size_t{64}, size_t{33000}, size_t{70000}}) {
      std::vector<int32_t> part(size);
      cache.tokens().slice(5, 1 << 20).copy_targets(static_cast<int64_t>(begin), part);
      ASSERT_TRUE(
          std::equal(part.begin(), part.end(), all.begin() + 5 + static_cast<int64_t>(begin)))
          << size << " from " << begin;
    }
  }
}

TEST_F(TokenDocumentsTest, RowsThatDoNotFitTheVocabularyOrAreNotThereAreErrors) {
  std::vector<Record> rows(1);
  rows[0].ids = {1, 300};
  expect_contains(user_error([&] { build(rows); }),
                  "data set 'rows' has a row with the id 300, the vocabulary has 300 entries");
  rows[0].ids = {-1};
  expect_contains(user_error([&] { build(rows); }), "the id -1");
  expect_contains(user_error([&] { build({}); }), "'rows' is empty: there is no row");
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(TokenDocumentsTest, RecordsAreMadeIntoIdsByManyThreads) {
  TokenCacheJob job;
  job.name = "'talks'";
  job.vocab_size = 300;
  int next = 0;
  job.records = [&](Record& record) {
    record.clear();
    record.spans = {{"ab", false, false}, {std::string(static_cast<size_t>(next % 9), 'c'), true}};
    return next++ < 500;
  };
  job.encode_record = [](Record& record) {
    for (const TextSpan& span : record.spans) {
      for (char c : span.text) {
        record.ids.push_back(c);
        record.labels.push_back(span.learn ? c : kIgnoreIndex);
      }
    }
  };
  ThreadPool pool(3);
  const auto cache = build_token_cache(path_, job, pool);
  EXPECT_EQ(cache.documents(), 500);
  EXPECT_FALSE(cache.all_learned());
  for (int64_t i = 0; i < 500; ++i) {
    const TokenRange range = cache.document(i);
    ASSERT_EQ(range.length(), 2 + i % 9);
    std::vector<int32_t> expected(static_cast<size_t>(range.length()), 'c'), targets(expected);
    expected[0] = expected[1] = kIgnoreIndex;
    cache.tokens().copy_targets(range.begin, targets);
    ASSERT_EQ(targets, expected);
  }
  EXPECT_GT(cache.text_bytes(), 1000);
}

TEST_F(TokenDocumentsTest, DamageOfTheIndexIsNoticed) {
  const auto rows = rows_of_all_sizes(3, true);
  build(rows);
  const std::string good = read_file(path_);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    std::ofstream(path_, std::ios::binary) << bad;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(open_token_cache(path_, 42).has_value()) << "byte " << i;
    EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  }
}

// Hashes that fit do not make it right.
TEST_F(TokenDocumentsTest, DocumentsOutOfOrderAreRefusedOrFoundWhenTheyAreRead) {
  std::vector<Record> rows(3);
  for (auto& row : rows) row.ids = {1, 2, 3};
  for (const std::vector<uint64_t>& offsets : {std::vector<uint64_t>{0, 3, 3, 9},
                                               {0, 6, 3, 9},
                                               {0, 3, 9, 9},
                                               {1, 3, 6, 9},
                                               {0, 3, 6, 8},
                                               {0, 3, 6, 10},
                                               {0, 3, uint64_t{1} << 63, 9},
                                               {0, 100, 6, 9}}) {
    build(rows);
    write_offsets(offsets);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(open_token_cache(path_, 42).has_value());
    expect_contains(testing::internal::GetCapturedStderr(), "documents are out of order");
    auto open = [&](TokenCache::Check check) {
      return TokenCache(std::make_shared<ReadFile>(path_), check);
    };
    expect_contains(user_error([&] { open(TokenCache::Check::kContent); }), "out of order");
    const TokenCache cache = open(TokenCache::Check::kSizes);
    expect_contains(user_error([&] { cache.document_view().for_each([](TokenRange) {}); }),
                    "tokens.bin' is damaged: document ");
  }
}

TEST_F(TokenDocumentsTest, ALongIndexIsSpilledAndLeavesNothing) {
  constexpr int64_t kDocuments = 300'000;  // more than 2 MiB of offsets
  {
    TokenCacheWriter writer(path_, 300, 42);
    const std::vector<int32_t> id{1};
    for (int64_t i = 0; i < kDocuments; ++i) writer.add(id, {}, 0, true);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
    writer.commit();
  }
  const auto cache = open_token_cache(path_, 42);
  ASSERT_TRUE(cache.has_value());
  EXPECT_EQ(cache->documents(), kDocuments);
  EXPECT_EQ(cache->document(kDocuments - 1), (TokenRange{kDocuments - 1, kDocuments}));
  int64_t next = 0;
  cache->document_view().slice(5, kDocuments - 7).for_each([&](TokenRange range) {
    ASSERT_EQ(range.begin, 5 + next++);
  });
  EXPECT_EQ(next, kDocuments - 7);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

}  // namespace
}  // namespace tessera
