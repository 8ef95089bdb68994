#include "tokenizer/piece_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "tokenizer/pair_merges.h"

namespace tessera {
namespace {

std::string random_string(uint64_t seed, uint64_t index, uint64_t longest, uint64_t letters) {
  std::string text;
  uint64_t size = 1 + random_below(seed, index, 0, longest);
  for (uint64_t i = 1; i <= size; ++i) {
    text += static_cast<char>(random_below(seed, index, i, letters));
  }
  return text;
}

PieceTrie trie_of(const std::map<std::string, int32_t>& strings) {
  std::vector<PieceTrie::Entry> entries;
  for (const auto& [text, value] : strings) entries.push_back({text, value});
  return PieceTrie(std::move(entries), "test");
}

// Few letters make crowded nodes, 256 letters bytes of every value, zero among them.
TEST(PieceTrie, FindsTheLongestAsAMapDoes) {
  for (uint64_t letters : {2, 5, 256}) {
    std::map<std::string, int32_t> strings;
    for (uint64_t i = 0; i < 3000; ++i) {
      strings.emplace(random_string(letters, i, 6, letters), static_cast<int32_t>(i));
    }
    PieceTrie trie = trie_of(strings);
    for (uint64_t i = 0; i < 3000; ++i) {
      std::string text = random_string(letters + 1000, i, 9, letters);
      PieceTrie::Match expected;
      for (size_t size = 1; size <= text.size(); ++size) {
        auto found = strings.find(text.substr(0, size));
        if (found != strings.end()) expected = {size, found->second};
      }
      PieceTrie::Match match = trie.longest(text);
      ASSERT_EQ(match.size, expected.size);
      ASSERT_EQ(match.value, expected.value);
    }
    for (const auto& [text, value] : strings) ASSERT_EQ(trie.longest(text).value, value);
  }
}

TEST(PieceTrie, AnEmptyOneFindsNothing) {
  PieceTrie trie = trie_of({});
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(trie.longest(std::string(2, static_cast<char>(byte))).size, 0u);
  }
}

TEST(PieceTrie, RefusesMoreThanItCanHold) {
  std::vector<PieceTrie::Entry> entries;
  for (char first = 'a'; first <= 'c'; ++first) {
    entries.push_back({first + std::string(PieceTrie::kMaxNodes / 2, 'x'), 0});
  }
  EXPECT_THROW(PieceTrie(std::move(entries), "test"), UserError);
}

// Lowest rank first, leftmost among equals, by trying all pairs.
void merge_naively(
    std::vector<int32_t>& symbols,
    const std::map<std::pair<int32_t, int32_t>, std::pair<int32_t, int32_t>>& rules) {
  for (;;) {
    size_t best = symbols.size();
    int32_t rank = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      auto rule = rules.find({symbols[i], symbols[i + 1]});
      if (rule == rules.end() || (best < symbols.size() && rule->second.first >= rank)) continue;
      best = i;
      rank = rule->second.first;
    }
    if (best == symbols.size()) return;
    symbols[best] = rules.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// Several pairs share a rank, so that the leftmost counts; lengths on both sides of the two ways.
TEST(PairMerges, MergeAsDefined) {
  PairMerges merges;
  std::map<std::pair<int32_t, int32_t>, std::pair<int32_t, int32_t>> rules;
  for (uint64_t i = 0; i < 60; ++i) {
    auto limit = 4 + i / 3;
    auto left = static_cast<int32_t>(random_below(5, i, 0, limit));
    auto right = static_cast<int32_t>(random_below(5, i, 1, limit));
    auto rank = static_cast<int32_t>(random_below(5, i, 2, 20));
    if (!rules.try_emplace({left, right}, rank, static_cast<int32_t>(limit)).second) {
      EXPECT_FALSE(merges.add(left, right, rank, 0));
      continue;
    }
    EXPECT_TRUE(merges.add(left, right, rank, static_cast<int32_t>(limit)));
  }
  for (uint64_t i = 0; i < 300; ++i) {
    std::vector<int32_t> symbols;
    for (uint64_t k = 0; k < i % 80; ++k) {
      symbols.push_back(static_cast<int32_t>(random_below(6, i, k, 4)));
    }
    std::vector<int32_t> expected = symbols;
    merge_naively(expected, rules);
    symbols.resize(merges.merge(symbols));
    ASSERT_EQ(symbols, expected);
  }
}

}  // namespace
}  // namespace tessera
