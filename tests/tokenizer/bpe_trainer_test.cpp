#include "tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/byte_alphabet.h"

namespace tessera {
namespace {

std::function<bool(std::string&)> documents(std::vector<std::string> texts) {
  return [texts = std::move(texts), i = size_t{0}](std::string& document) mutable {
    if (i == texts.size()) return false;
    document = texts[i++];
    return true;
  };
}

std::vector<std::string> learned(const BpeModel& model) {
  return {model.tokens.begin() + 257, model.tokens.end()};
}

// Words of few letters, so that pairs often tie and overlap.
std::string random_text(uint64_t seed, uint64_t size, uint64_t letters) {
  std::string text;
  for (uint64_t i = 0; i < size; ++i) {
    uint64_t r = random_below(seed, 0, i, letters + 1);
    text += r == letters ? ' ' : static_cast<char>('a' + r);
  }
  return text;
}

// The definition, written down plainly: count all pairs anew for each merge.
std::vector<BpeModel::Merge> plain_merges(const std::vector<PieceCount>& pieces,
                                          const BpeTrainerOptions& options) {
  std::vector<std::string> tokens{"<|endoftext|>"};
  for (uint8_t byte : byte_alphabet_order()) tokens.emplace_back(1, static_cast<char>(byte));
  auto id_of = [&](const std::string& bytes) {
    return static_cast<int32_t>(std::find(tokens.begin() + 1, tokens.end(), bytes) -
                                tokens.begin());
  };
  std::vector<std::vector<int32_t>> words;
  for (const PieceCount& piece : pieces) {
    words.emplace_back();
    for (char byte : piece.bytes) words.back().push_back(id_of(std::string(1, byte)));
  }
  std::vector<BpeModel::Merge> merges;
  while (tokens.size() < static_cast<size_t>(options.vocab_size)) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (size_t w = 0; w < words.size(); ++w) {
      for (size_t i = 0; i + 1 < words[w].size(); ++i) {
        counts[{words[w][i], words[w][i + 1]}] += pieces[w].count;
      }
    }
    auto best = std::ranges::max_element(counts, {}, [](auto& entry) { return entry.second; });
    if (best == counts.end() || best->second < options.min_frequency) break;
    auto [left, right] = best->first;
    std::string bytes = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
    int32_t result = id_of(bytes);
    if (static_cast<size_t>(result) == tokens.size()) tokens.push_back(bytes);
    merges.push_back({left, right, result});
    for (auto& word : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        bool match = i + 1 < word.size() && word[i] == left && word[i + 1] == right;
        merged.push_back(match ? result : word[i]);
        if (match) ++i;
      }
      word = std::move(merged);
    }
  }
  return merges;
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  BpeTrainerOptions options;
  options.vocab_size = 261;
  BpeModel model = train_bpe(documents({"low low low low", "lower newest newest"}), options);
  EXPECT_EQ(learned(model), (std::vector<std::string>{"lo", "low", " low", "es"}));
  EXPECT_EQ(model.tokens[0], "<|endoftext|>");
  EXPECT_EQ(model.end_of_text, 0);
  EXPECT_TRUE(model.find_added(0)->special);
}

TEST(BpeTrainer, AmongEqualsTheSmallestPairWins) {
  BpeTrainerOptions options;
  options.vocab_size = 258;
  EXPECT_EQ(learned(train_bpe(documents({"zy\nzy\nab\nab\nxw\nxw"}), options)),
            std::vector<std::string>{"ab"});
}

TEST(BpeTrainer, EqualsThePlainDefinition) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    BpeTrainerOptions options;
    options.vocab_size = 400;
    options.min_frequency = 1 + static_cast<int64_t>(seed % 3);
    auto pieces = count_pieces(documents({random_text(seed, 1500, 1 + seed % 4)}), 1);
    EXPECT_TRUE(train_bpe(pieces, options).merges == plain_merges(pieces, options)) << seed;
  }
}

TEST(BpeTrainer, DoesNotDependOnThreadsOrDocumentSizes) {
  BpeTrainerOptions options;
  options.vocab_size = 350;
  std::string text = random_text(5, 600'000, 6);  // three tiles
  BpeModel one = train_bpe(documents({text}), options);
  for (int threads : {2, 3, 5}) {
    options.threads = threads;
    EXPECT_TRUE(train_bpe(documents({text}), options) == one) << threads;
  }
  size_t cut = text.find(' ', text.size() / 2);
  EXPECT_TRUE(train_bpe(documents({text.substr(0, cut), "", text.substr(cut)}), options) == one);
}

TEST(BpeTrainer, CountsPiecesOverTileBorders) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += i % 2 ? " odd" : " even";
  std::map<std::string, int64_t> counts;
  for (auto& piece : count_pieces(documents({text}), 2)) counts[piece.bytes] = piece.count;
  EXPECT_EQ(counts, (std::map<std::string, int64_t>{{" even", 50000}, {" odd", 50000}}));
}

TEST(BpeTrainer, StopsWhenNoPairIsFrequentEnough) {
  BpeTrainerOptions options;
  options.min_frequency = 3;
  EXPECT_EQ(learned(train_bpe(documents({"ab ab ab cd cd"}), options)),
            (std::vector<std::string>{"ab"}));
  EXPECT_EQ(learned(train_bpe(documents({"x"}), options)), std::vector<std::string>{});
}

TEST(BpeTrainer, AWordOfAMegabyteIsNoTrouble) {
  BpeTrainerOptions options;
  options.vocab_size = 300;
  std::string word(1 << 20, 'a');
  for (size_t i = 0; i < word.size(); ++i) {
    word[i] = static_cast<char>('a' + random_below(1, 2, i, 20));
  }
  EXPECT_EQ(train_bpe(documents({word}), options).tokens.size(), 300u);
}

TEST(BpeTrainer, ReportsProgress) {
  BpeTrainerOptions options;
  options.vocab_size = 1000;
  std::vector<int64_t> done;
  options.progress = [&](int64_t tokens, int64_t wanted) {
    done.push_back(tokens);
    EXPECT_EQ(wanted, 1000);
  };
  train_bpe(documents({random_text(2, 20000, 20)}), options);
  EXPECT_FALSE(done.empty());
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  auto message = [](BpeTrainerOptions options, std::vector<std::string> texts) {
    return user_error([&] { train_bpe(documents(std::move(texts)), options); });
  };
  expect_contains(message({.vocab_size = 256}, {"text"}), "at least 257");
  expect_contains(message({.min_frequency = 0}, {"text"}), "min_frequency");
  expect_contains(message({}, {}), "no text");
  expect_contains(message({}, {"", ""}), "no text");
}

}  // namespace
}  // namespace tessera
