#include "data/token_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "base/interruption.h"
#include "base/random.h"
#include "data/dataset_files.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr int32_t kEndOfText = 256;

// One id a word or a run of blanks: depends on what stands around a byte, as real tokenizers do.
void encode_words(std::string_view text, std::vector<int32_t>& ids) {
  size_t begin = 0;
  while (begin < text.size()) {
    auto blank = [&](size_t i) { return text[i] == ' ' || text[i] == '\n'; };
    size_t end = begin + 1;
    while (end < text.size() && blank(end) == blank(begin)) ++end;
    uint32_t hash = 0;
    for (char c : text.substr(begin, end - begin)) hash = hash * 31 + static_cast<unsigned char>(c);
    ids.push_back(static_cast<int32_t>(hash % 256));
    begin = end;
  }
}

std::vector<std::string> documents_of_all_sizes() {
  std::vector<std::string> documents;
  for (uint64_t d = 0; d < 300; ++d) {
    size_t size = 1 + random_below(3, 0, d, d % 50 == 7 ? 400000 : 2000);
    std::string text;
    for (uint64_t i = 0; text.size() < size; ++i) {
      text.append(1 + random_below(3, d + 1, i, 9), static_cast<char>('a' + i % 26));
      text += i % 5 == 0 ? "\n" : i % 7 == 0 ? " \n\n" : " ";
    }
    documents.push_back(std::move(text));
  }
  return documents;
}

TextSource source_of(const std::vector<std::string>& documents) {
  return [&documents, next = size_t{0}](std::string& document) mutable {
    if (next == documents.size()) return TextPart::kNone;
    document = documents[next++];
    return TextPart::kLast;
  };
}

// The same in parts of a few bytes, or of many; the last is empty where one ends with the document.
TextSource parts_of(const std::vector<std::string>& documents, size_t size) {
  return [&documents, size, next = size_t{0}, at = size_t{0}](std::string& part) mutable {
    if (next == documents.size()) return TextPart::kNone;
    part = documents[next].substr(at, size);
    at += size;
    if (part.size() == size) return TextPart::kMore;
    at = 0;
    ++next;
    return TextPart::kLast;
  };
}

std::vector<int32_t> expected_ids(const std::vector<std::string>& documents) {
  std::vector<int32_t> ids;
  for (const auto& document : documents) {
    encode_words(document, ids);
    ids.push_back(kEndOfText);
  }
  return ids;
}

std::vector<int32_t> ids_of(const TokenCache& cache) {
  std::vector<int32_t> ids(static_cast<size_t>(cache.tokens().count()));
  cache.tokens().copy(0, ids);
  return ids;
}

class TokenCacheTest : public testing::Test {
 protected:
  TokenCacheJob job(const std::vector<std::string>& documents) {
    TokenCacheJob result;
    result.name = "'words'";
    result.fingerprint = 42;
    result.vocab_size = 257;
    result.end_of_text = kEndOfText;
    result.documents = source_of(documents);
    result.encode = encode_words;
    return result;
  }
  TokenCache build(const TokenCacheJob& j, int threads = 1) {
    ThreadPool pool(threads);
    return build_token_cache(path_, j, pool);
  }
  // What open_token_cache() warns of, for a file with this content.
  std::string warning_for(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(open_token_cache(path_, 42).has_value());
    return testing::internal::GetCapturedStderr();
  }
  ScratchDirectory directory_;
  std::filesystem::path path_ = directory_ / "tokens.bin";
};

TEST_F(TokenCacheTest, HoldsTheIdsOfEveryDocumentAndItsEnd) {
  const auto documents = documents_of_all_sizes();
  int64_t bytes = 0;
  for (const auto& document : documents) bytes += std::ssize(document);
  TokenCacheProgress last;
  int calls = 0;
  auto j = job(documents);
  j.progress = [&](const TokenCacheProgress& p) {
    EXPECT_GT(p.tokens, last.tokens);
    last = p;
    ++calls;
  };
  auto cache = build(j);
  EXPECT_EQ(ids_of(cache), expected_ids(documents));
  EXPECT_EQ(cache.text_bytes(), bytes);
  EXPECT_EQ(cache.documents(), 300);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(last.text_bytes, bytes);
  EXPECT_EQ(last.documents, 300);
  EXPECT_EQ(last.tokens, cache.tokens().count());

  auto opened = open_token_cache(path_, 42);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(ids_of(*opened), ids_of(cache));
  EXPECT_EQ(opened->text_bytes(), bytes);
  std::vector<int32_t> one_by_one;
  opened->tokens().for_each([&](int32_t id) { one_by_one.push_back(id); });
  EXPECT_EQ(one_by_one, ids_of(cache));
}

TEST_F(TokenCacheTest, SameFileForAnyNumberOfThreadsWithAndWithoutCuts) {
  const auto documents = documents_of_all_sizes();
  build(job(documents));
  const std::string expected = read_file(path_);
  for (int threads : {1, 2, 3, 5}) {
    auto j = job(documents);
    std::atomic<size_t> longest{0};
    j.cut = [](std::string_view text, size_t from) {  // before a word
      return std::min(text.find_first_of(" \n", from), text.size());
    };
    j.encode = [&](std::string_view text, std::vector<int32_t>& ids) {
      for (size_t seen = longest;
           text.size() > seen && !longest.compare_exchange_weak(seen, text.size());) {
      }
      encode_words(text, ids);
    };
    build(j, threads);
    EXPECT_TRUE(read_file(path_) == expected) << threads << " threads";
    EXPECT_LT(longest, 70000u);  // the documents of up to 400 kB were cut
  }
}

TEST_F(TokenCacheTest, SameFileHoweverDocumentsComeInParts) {
  const auto documents = documents_of_all_sizes();
  auto j = job(documents);
  j.document_prefix = {255};
  build(j);
  const std::string expected = read_file(path_);
  auto at_words = [](std::string_view text, size_t from) {
    return std::min(text.find_first_of(" \n", from), text.size());
  };
  for (size_t size : {size_t{1000}, size_t{1} << 16, size_t{1} << 20}) {
    for (bool cuts : {false, true}) {
      j.documents = parts_of(documents, size);
      j.cut = nullptr;
      if (cuts) j.cut = at_words;
      build(j, 2);
      EXPECT_TRUE(read_file(path_) == expected) << "parts of " << size << (cuts ? ", cut" : "");
    }
  }
}

// More text than the longest piece: it is nowhere whole.
TEST_F(TokenCacheTest, ALongDocumentIsNeverInMemory) {
  auto j = job({});
  j.longest_piece = size_t{4} << 20;
  int64_t left = 20;
  size_t largest = 0;
  j.documents = [&](std::string& part) {
    part.assign(1 << 20, 'a');
    return --left < 0 ? TextPart::kNone : left == 0 ? TextPart::kLast : TextPart::kMore;
  };
  j.cut = [](std::string_view, size_t from) { return from; };
  std::mutex mutex;
  j.encode = [&](std::string_view text, std::vector<int32_t>& ids) {
    std::lock_guard lock(mutex);
    largest = std::max(largest, text.size());
    ids.push_back(1);
  };
  EXPECT_EQ(build(j).text_bytes(), int64_t{20} << 20);
  EXPECT_LE(largest, size_t{64} << 10);
}

TEST_F(TokenCacheTest, ADocumentThatCannotBeCutIsBounded) {
  auto j = job({});
  j.longest_piece = size_t{4} << 20;
  int64_t read = 0;
  j.documents = [&](std::string& part) {
    part.assign(1 << 20, 'a');
    read += 1 << 20;
    return TextPart::kMore;
  };
  j.cut = [](std::string_view text, size_t) { return text.size(); };
  std::string message = user_error([&] { build(j); });
  expect_contains(message, "a document of more than 4.00 MiB");
  expect_contains(message, "<|endoftext|>");
  EXPECT_LE(read, (int64_t{4} << 20) + (1 << 20));
}

TEST_F(TokenCacheTest, EveryDocumentBeginsWithThePrefix) {
  const std::vector<std::string> documents{"ab", std::string(300000, 'a') + " b", "c"};
  std::vector<int32_t> expected;
  for (const auto& document : documents) {
    expected.insert(expected.end(), {255, 7});
    encode_words(document, expected);
    expected.push_back(kEndOfText);
  }
  auto j = job(documents);
  j.document_prefix = {255, 7};
  EXPECT_EQ(ids_of(build(j)), expected);
  j.documents = source_of(documents);
  j.cut = [](std::string_view text, size_t) { return text.find(' '); };  // the long one, in two
  EXPECT_EQ(ids_of(build(j)), expected);
}

TEST_F(TokenCacheTest, WidthFollowsTheVocabulary) {
  for (auto [vocab, id, bytes] :
       {std::tuple{65536, 65535, 2}, {65537, 65536, 4}, {1 << 20, 1048575, 4}}) {
    const std::vector<std::string> documents{"abc"};
    auto j = job(documents);
    j.vocab_size = vocab;
    j.end_of_text = id;
    EXPECT_EQ(ids_of(build(j)).back(), id);
    // 2 ids, padded to 8; where the document begins and where it ends
    EXPECT_EQ(std::filesystem::file_size(path_), 8u + 16u + 96u);
    EXPECT_EQ(read_file(path_)[24 + 12], bytes);
  }
}

TEST_F(TokenCacheTest, AbsentOrOfOtherInputIsSilentlyNone) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(open_token_cache(path_, 42).has_value());
  const std::vector<std::string> documents{"a b c"};
  build(job(documents));
  EXPECT_FALSE(open_token_cache(path_, 43).has_value());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(open_token_cache(path_, 42).has_value());
  expect_contains(user_error([&] { open_token_cache(directory_.path(), 42); }), "cannot read");
}

TEST_F(TokenCacheTest, DamageAnywhereIsNoticedAndTheFileIsBuiltAgain) {
  const std::vector<std::string> documents{"a b c", "d e"};
  build(job(documents));
  const std::string good = read_file(path_);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    SCOPED_TRACE(cat("byte ", i));
    expect_contains(warning_for(bad), "tokens.bin' is damaged");
  }
  for (size_t size = 0; size < good.size(); ++size) {
    SCOPED_TRACE(cat(size, " bytes"));
    expect_contains(warning_for(good.substr(0, size)), "is damaged");
  }
  expect_contains(warning_for("x" + good), "its size does not fit");
  EXPECT_EQ(ids_of(build(job(documents))), expected_ids(documents));
}

TEST_F(TokenCacheTest, AFailedBuildLeavesTheOldFileAndNothingElse) {
  write_file_atomic(path_, "old");
  const std::vector<std::string> documents = documents_of_all_sizes();
  auto j = job(documents);
  j.documents = [next = source_of(documents), n = 0](std::string& document) mutable {
    if (n++ == 200) throw UserError("line 200 is broken");
    return next(document);
  };
  EXPECT_EQ(user_error([&] { build(j, 2); }), "line 200 is broken");
  j = job(documents);
  j.encode = [](std::string_view, std::vector<int32_t>&) { throw UserError("cannot encode"); };
  EXPECT_EQ(user_error([&] { build(j, 2); }), "cannot encode");
  j = job(documents);
  j.encode = [](std::string_view, std::vector<int32_t>& ids) { ids.push_back(257); };
  EXPECT_THROW(build(j), InternalError);
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(TokenCacheTest, IdsThatAreCutOffAreAnError) {
  const auto documents = documents_of_all_sizes();
  for (int64_t vocabulary : {257, 70000}) {  // 2 and 4 bytes each
    auto j = job(documents);
    j.vocab_size = vocabulary;
    auto cache = build(j);
    auto moved = std::move(cache);
    std::vector<int32_t> ids(10);
    moved.tokens().copy(1000, ids);
    std::filesystem::resize_file(path_, 2010);
    expect_contains(user_error([&] { moved.tokens().copy(1000, ids); }),
                    "another program has cut it short");
    std::filesystem::remove(path_);  // the open file is another's name now
    moved.tokens().copy(10, ids);
  }
}

TEST_F(TokenCacheTest, ARequestToEndLeavesNothingBehind) {
  const auto documents = documents_of_all_sizes();
  for (int threads : {1, 3}) {
    clear_interruption();
    auto j = job(documents);
    j.encode = [&](std::string_view text, std::vector<int32_t>& ids) {
      encode_words(text, ids);
      request_interruption();
    };
    EXPECT_THROW(build(j, threads), Interrupted);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  clear_interruption();
  build(job(documents));
  request_interruption();
  EXPECT_THROW(open_token_cache(path_, 42), Interrupted);
  clear_interruption();
}

TEST_F(TokenCacheTest, NoTextAtAllIsAnErrorThatNamesTheDataSet) {
  for (const auto& documents : {std::vector<std::string>{}, {"", ""}}) {
    expect_contains(user_error([&] { build(job(documents)); }), "data set 'words' is empty");
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TokenCacheTest, FingerprintFollowsFilesOptionsAndTokenizer) {
  auto a = directory_.write("a", "text"), b = directory_.write("b", "text");
  auto fingerprint = [&](std::vector<std::filesystem::path> files, bool skip = false,
                         uint64_t t = 1) {
    return dataset_fingerprint(local_entries(files), {.skip_bad_lines = skip}, t);
  };
  const uint64_t base = fingerprint({a, b});
  EXPECT_EQ(fingerprint({a, b}), base);
  EXPECT_EQ(fingerprint({directory_ / "." / "a", b}), base);
  EXPECT_NE(fingerprint({b, a}), base);
  EXPECT_NE(fingerprint({a}), base);
  EXPECT_NE(fingerprint({a, b}, true), base);
  EXPECT_NE(fingerprint({a, b}, false, 2), base);
  auto of_vocabulary = [&](RecordKind kind, int64_t size) {
    return dataset_fingerprint(local_entries(std::vector{a}), {.kind = kind, .vocab_size = size},
                               1);
  };
  EXPECT_NE(of_vocabulary(RecordKind::kIds, 8), of_vocabulary(RecordKind::kIds, 9));
  EXPECT_EQ(of_vocabulary(RecordKind::kText, 8), of_vocabulary(RecordKind::kText, 9));
  auto time = std::filesystem::last_write_time(a);
  std::filesystem::last_write_time(a, time + std::chrono::seconds(1));
  EXPECT_NE(fingerprint({a, b}), base);
  std::filesystem::last_write_time(a, time);
  EXPECT_EQ(fingerprint({a, b}), base);
  directory_.write("a", "text!");
  std::filesystem::last_write_time(a, time);
  EXPECT_NE(fingerprint({a, b}), base);
  expect_contains(user_error([&] { fingerprint({directory_ / "none"}); }), "none'");
}

}  // namespace
}  // namespace tessera
