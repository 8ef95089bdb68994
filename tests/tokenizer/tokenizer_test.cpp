#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens";

BpeModel golden_model() {
  return parse_byte_level_json(read_file(kGoldens + "/tokenizer.json"), "golden");
}

std::string random_bytes(uint64_t seed, uint64_t size) {
  std::string text;
  for (uint64_t i = 0; i < size; ++i) text += static_cast<char>(random_below(seed, 1, i, 256));
  return text;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

TEST(ByteTokenizer, IdsAreBytes) {
  auto tokenizer = load_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  std::vector<int32_t> ids{7};
  tokenizer->encode("A\xFF", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{7, 65, 255}));  // appended
  EXPECT_EQ(tokenizer->token_bytes(256), "<|endoftext|>");
  std::string text = random_bytes(1, 5000);
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text)), text);
}

TEST(ByteLevelBpe, AnyBytesComeBack) {
  auto tokenizer = load_tokenizer(kGoldens + "/tokenizer.json");
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::string text = random_bytes(seed, 20 * seed);
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text)), text);
  }
}

TEST(ByteLevelBpe, AppendsAndNeverEmitsEndOfText) {
  auto tokenizer = load_tokenizer(kGoldens);  // a directory
  std::vector<int32_t> ids{-5};
  tokenizer->encode("<|endoftext|>", ids);
  EXPECT_EQ(ids.front(), -5);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->end_of_text()), 0);
  tokenizer->encode("", ids);
  EXPECT_EQ(tokenizer->decode(std::span(ids).subspan(1)), "<|endoftext|>");
}

// Short pieces are merged by scanning, long ones with a heap: the result must not tell.
TEST(ByteLevelBpe, ShortAndLongPiecesMergeAlike) {
  BpeModel model = golden_model();
  ByteLevelBpe tokenizer(model);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::string word;
    while (word.size() < 20 + seed % 40) {
      word += model.tokens[257 + random_below(seed, 9, word.size(), model.tokens.size() - 257)];
    }
    std::erase_if(word, [](char c) { return c < 'a' || c > 'z'; });
    std::vector<int32_t> expected;
    for (char c : word) expected.push_back(ids_of(tokenizer, std::string(1, c))[0]);
    for (const BpeModel::Merge& merge : model.merges) {  // in order of rank, each leftmost first
      for (size_t i = 0; i + 1 < expected.size(); ++i) {
        if (expected[i] != merge.left || expected[i + 1] != merge.right) continue;
        expected[i] = merge.result;
        expected.erase(expected.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
    EXPECT_EQ(ids_of(tokenizer, word), expected) << word;
    EXPECT_EQ(ids_of(tokenizer, word), expected) << word;  // from the cache
  }
}

TEST(ByteLevelBpe, TwoTokenizersOnOneThreadDoNotShareTheirCache) {
  BpeModel model = golden_model();
  ByteLevelBpe full(model);
  model.merges.clear();
  ByteLevelBpe bare(model);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ids_of(full, " the").size(), 1u);
    EXPECT_EQ(ids_of(bare, " the").size(), 4u);
  }
}

TEST(ByteLevelBpe, EncodesOnSeveralThreadsAtOnce) {
  auto tokenizer = load_tokenizer(kGoldens);
  std::string text = read_file(kGoldens + "/corpus.txt");
  std::vector<int32_t> expected = ids_of(*tokenizer, text);
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) result = ids_of(*tokenizer, text);
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& result : results) EXPECT_EQ(result, expected);
}

TEST(ByteLevelBpe, IsCutAtALineEndBesideText) {
  BpeModel model = golden_model();
  auto cut = [&](std::string_view text, size_t from) {
    return ByteLevelBpe(model).cut(text, from);
  };
  // Before it: white space behind a character that is none ends a piece of GPT-2.
  EXPECT_EQ(cut("ab\ncd", 0), 2u);
  EXPECT_EQ(cut("ab\ncd", 3), 5u);
  EXPECT_EQ(cut("ab \ncd\n\nef", 0), 6u);
  EXPECT_EQ(cut("ab\r\ncd", 0), 2u);
  EXPECT_EQ(cut("ab\r\ncd", 3), 6u);
  EXPECT_EQ(cut("ab\n", 0), 2u);
  EXPECT_EQ(cut("\nab", 0), 3u);
  EXPECT_EQ(cut("\u3000\n\xc3\xa9\nab", 0), 6u);
  EXPECT_EQ(cut("\x80\x80\x80\x80\x80\n", 0), 5u);
  // Behind it.
  model.pattern = PiecePattern::kLlama3;
  EXPECT_EQ(cut("ab\ncd", 0), 3u);
  EXPECT_EQ(cut("ab\ncd", 3), 5u);
  EXPECT_EQ(cut("ab \n cd\n\nef", 0), 9u);
  EXPECT_EQ(cut("ab\r\ncd", 0), 4u);
  EXPECT_EQ(cut("ab\n", 0), 3u);
  EXPECT_EQ(cut("\nab", 0), 1u);
  EXPECT_EQ(cut("a\n\u0301\n\u3000\n\xc3\n\xd0\xb6", 0), 11u);
}

TEST(ByteLevelBpe, CutTextsHaveTheSameIds) {
  constexpr std::string_view kLetters[] = {
      "\n",     "\n",     " ",    "\r", "a",      "the",    ".",      "1",      "e\u0301",
      "\u0301", "\x80",   "'S",   "<|", "\u3000", "\r\n",   "\u0436", "\u2014", "\u4e2d",
      "\u1100", "\u1161", "\xe1", "\t", "!",      "\u0958", "\u00a0", "\u09be", "\u0665"};
  BpeModel model = golden_model();
  model.added.push_back({.text = "\u0301<|", .id = 700, .normalized = true});
  model.tokens.push_back("\u0301<|");
  // What merges around line ends, so that other pieces would have other ids.
  auto byte = [&](char c) {
    return static_cast<int32_t>(std::ranges::find(model.tokens, std::string(1, c)) -
                                model.tokens.begin());
  };
  for (char left : std::string("\r\n \t!.a1\x80\xb6")) {
    for (char right : std::string("\r\n \t!.a1\xd0\xe2")) {
      const std::string both{left, right};
      if (std::ranges::find(model.tokens, both) != model.tokens.end()) continue;
      model.merges.push_back({byte(left), byte(right), static_cast<int32_t>(model.tokens.size())});
      model.tokens.push_back(both);
    }
  }
  size_t cuts = 0;
  for (int variant = 0; variant < 6; ++variant) {
    model.pattern = std::vector{PiecePattern::kGpt2, PiecePattern::kLlama3,
                                PiecePattern::kQwen2}[static_cast<size_t>(variant / 2)];
    model.nfc = variant % 2 != 0;
    ByteLevelBpe tokenizer(model);
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      std::string text;
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t letters = seed % 2 ? std::size(kLetters) : 14;
        text += kLetters[random_below(4, seed, i, letters)];
      }
      std::vector<int32_t> parts;
      for (size_t begin = 0, end; begin < text.size(); begin = end) {
        end = tokenizer.cut(text, begin + 1);
        tokenizer.encode(std::string_view(text).substr(begin, end - begin), parts);
        cuts += end < text.size();
      }
      ASSERT_EQ(parts, ids_of(tokenizer, text)) << text;
    }
  }
  EXPECT_GT(cuts, 20'000u);
  model.added.back().strip_left = true;  // it may swallow a line end
  EXPECT_EQ(ByteLevelBpe(model).cut("ab\ncd", 0), 5u);
}

TEST(ByteLevelBpe, IdsOutsideTheVocabularyAreErrors) {
  auto tokenizer = load_tokenizer(kGoldens);
  for (int32_t id : {-1, tokenizer->vocab_size(), INT32_MAX}) {
    EXPECT_THROW(tokenizer->token_bytes(id), UserError);
    EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{1, id}), UserError);
  }
}

TEST(ByteLevelBpe, AnInconsistentModelIsABug) {
  BpeModel good = golden_model();
  BpeModel model = good;
  model.tokens[5] = "many";
  EXPECT_THROW(ByteLevelBpe{model}, InternalError);
  model = good;
  model.merges.push_back(model.merges[0]);
  EXPECT_THROW(ByteLevelBpe{model}, InternalError);
  model = good;
  model.merges[0].result = 100000;
  EXPECT_THROW(ByteLevelBpe{model}, InternalError);
  model = good;
  model.end_of_text = -1;
  EXPECT_THROW(ByteLevelBpe{model}, InternalError);
}

TEST(Fingerprint, ChangesWithWhateverChangesIds) {
  BpeModel model = golden_model();
  uint64_t fingerprint = ByteLevelBpe(model).fingerprint();
  EXPECT_EQ(ByteLevelBpe(model).fingerprint(), fingerprint);
  BpeModel other = model;
  std::swap(other.tokens[300], other.tokens[301]);
  EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  other = model;
  std::swap(other.merges[3], other.merges[4]);
  EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  other = model;
  other.end_of_text = 1;
  EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  for (bool AddedToken::*flag : {&AddedToken::normalized, &AddedToken::single_word,
                                 &AddedToken::strip_left, &AddedToken::strip_right}) {
    other = model;
    other.added[0].*flag = true;
    EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  }
  other = model;
  other.document_prefix = {0};
  EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  other = model;
  other.pattern = PiecePattern::kLlama3;
  EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  for (bool BpeModel::*flag :
       {&BpeModel::nfc, &BpeModel::whole_pieces, &BpeModel::rank_is_result}) {
    other = model;
    other.*flag = true;
    EXPECT_NE(ByteLevelBpe(other).fingerprint(), fingerprint);
  }
  EXPECT_NE(load_tokenizer("byte")->fingerprint(), fingerprint);
}

TEST(ByteAlphabet, SpellsEveryByteOnce) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(bytes)), bytes);
  EXPECT_EQ(to_byte_alphabet(" a\n\x7F\xFF"), "\u0120a\u010A\u0121\u00FF");
  EXPECT_EQ(byte_alphabet_order()[0], '!');
  EXPECT_EQ(byte_alphabet_order()[255], 0xAD);
  for (const char* wrong : {" ", "\n", "\u00AD", "\u0144", "\u4E00", "\xC3", "\xC3(", "\xC1\x81"}) {
    EXPECT_FALSE(from_byte_alphabet(wrong)) << wrong;
  }
}

TEST(PairMap, FindsWhatWasInserted) {
  PairMap<int> map;
  for (int left = 0; left < 60; ++left) {
    for (int right = 0; right < 60; ++right) {
      EXPECT_TRUE(map.insert(left, right * 1000, left + right).second);
    }
  }
  EXPECT_EQ(map.size(), 3600u);
  auto [value, inserted] = map.insert(3, 4000, -1);
  EXPECT_FALSE(inserted);
  EXPECT_EQ(value, 7);
  for (int left = 0; left < 60; ++left) {
    ASSERT_NE(map.find(left, 59000), nullptr);
    EXPECT_EQ(*map.find(left, 59000), left + 59);
    EXPECT_EQ(map.find(left, 59001), nullptr);
  }
}

}  // namespace
}  // namespace tessera
