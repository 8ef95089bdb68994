#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

// Texts as they are, tokens as [id].
std::string split(const AddedTokens& tokens, std::string_view text,
                  const SpecialNames& special = {.anywhere = true}) {
  std::string shown;
  tokens.split(
      text, special, [&](std::string_view part) { shown += cat("(", part, ")"); },
      [&](const AddedToken& token, TextRange) { shown += cat("[", token.id, "]"); });
  return shown;
}

TEST(AddedTokens, LeftmostAndThenLongest) {
  AddedTokens tokens(
      {{.text = "ab", .id = 1}, {.text = "abc", .id = 2}, {.text = "bcde", .id = 3}});
  EXPECT_EQ(split(tokens, "xabcdey"), "(x)[2](dey)");
  EXPECT_EQ(split(tokens, "ababd"), "[1][1](d)");
  EXPECT_EQ(split(tokens, "bcd"), "(bcd)");
  EXPECT_EQ(split(tokens, ""), "");
  EXPECT_EQ(split(AddedTokens(), "text"), "(text)");
}

TEST(AddedTokens, SpecialOnesAreTextWhereTheyAreNotWanted) {
  AddedTokens tokens({{.text = "<s>", .id = 1, .special = true}, {.text = "s", .id = 2}});
  EXPECT_EQ(split(tokens, "<s>s"), "[1][2]");
  EXPECT_EQ(split(tokens, "<s>s", {}), "(<s>)[2]");  // nothing is found inside of it
  AddedTokens names({{.text = "<s>", .id = 1, .special = true}});
  EXPECT_EQ(split(names, "<s>", {}), "(<s>)");
}

TEST(AddedTokens, SpecialOnesAreFoundInsideOfRanges) {
  AddedTokens tokens(
      {{.text = "<s>", .id = 1, .special = true, .strip_right = true}, {.text = "s", .id = 2}});
  const std::vector<TextRange> ranges{{3, 6}, {8, 13}};
  EXPECT_EQ(split(tokens, "<s><s><s><s><s><s>", {.ranges = ranges}), "(<s>)[1](<s>)[1](<s><s>)");
  EXPECT_EQ(split(tokens, "<s><s>", {.ranges = ranges, .offset = 3}), "[1](<s>)");
  std::vector<TextRange> names;
  tokens.split(
      "<s>  s", {.anywhere = true}, [](std::string_view) {},
      [&](const AddedToken&, TextRange name) { names.push_back(name); });
  EXPECT_EQ(names, (std::vector<TextRange>{{0, 3}, {5, 6}}));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  AddedTokens tokens({{.text = "rank", .id = 1, .single_word = true}});
  EXPECT_EQ(split(tokens, "rank ranks rank1 _rank (rank)"), "[1]( ranks rank1 _rank ()[1]())");
  EXPECT_EQ(split(tokens, "rank\u0301 \u00E9rank rank\u24D0"),
            "(rank\u0301 \u00E9rank rank\u24D0)");
  EXPECT_EQ(split(tokens, "rank\x80\xC3rank"), "[1](\x80\xC3)[1]");
}

TEST(AddedTokens, StrippingSwallowsWhiteSpace) {
  AddedTokens left({{.text = "<l>", .id = 1, .strip_left = true}});
  EXPECT_EQ(split(left, "a \u3000\n<l> <l>"), "(a)[1][1]");
  AddedTokens right({{.text = "<r>", .id = 1, .strip_right = true}});
  EXPECT_EQ(split(right, "<r> \u3000\n<r> a"), "[1][1](a)");
  EXPECT_EQ(split(right, "<r>\xC2"), "[1](\xC2)");
}

TEST(AddedTokens, SpacesThatAreSymbolsStay) {
  AddedTokens both({{.text = "<x>", .id = 1, .strip_left = true, .strip_right = true}}, true);
  EXPECT_EQ(split(both, "a <x> b"), "(a )[1]( b)");
  EXPECT_EQ(split(both, "a \n<x>\t b"), "(a )[1]( b)");
}

// As Hugging Face's library has it: what one token swallowed is still looked at.
TEST(AddedTokens, WhiteSpaceThatIsAToken) {
  AddedTokens swallows({{.text = "\n", .id = 1, .strip_left = true, .strip_right = true}});
  EXPECT_EQ(split(swallows, "a\n\nb"), "(a)[1](b)");
  AddedTokens beside({{.text = "<r>", .id = 1, .strip_right = true}, {.text = "\n", .id = 2}});
  EXPECT_EQ(split(beside, "<r> \nb"), "[1][2](b)");
}

TEST(AddedTokens, WhatReadersMustRefuseIsABug) {
  EXPECT_THROW(AddedTokens({{.text = "", .id = 1}}), InternalError);
  EXPECT_THROW(AddedTokens({{.text = "a", .id = 1}, {.text = "b", .id = 2, .normalized = true}}),
               InternalError);
}

}  // namespace
}  // namespace tessera
