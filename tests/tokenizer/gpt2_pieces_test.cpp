#include "tokenizer/gpt2_pieces.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = gpt2_piece_end(text, begin);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
  }
  return pieces;
}

TEST(Gpt2Pieces, WordsTakeOneSpaceWithThem) {
  EXPECT_EQ(pieces_of("Hello world12 +=x"), (Pieces{"Hello", " world", "12", " +=", "x"}));
  EXPECT_EQ(pieces_of("a_b\tc"), (Pieces{"a", "_", "b", "\t", "c"}));
}

TEST(Gpt2Pieces, ARunOfSpacesLeavesItsLastOneToTheWord) {
  EXPECT_EQ(pieces_of("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces_of("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(pieces_of("a \t 1"), (Pieces{"a", " \t", " 1"}));
  EXPECT_EQ(pieces_of("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(pieces_of(" "), (Pieces{" "}));
  EXPECT_EQ(pieces_of("a\u3000\u3000b"), (Pieces{"a", "\u3000", "\u3000", "b"}));
}

TEST(Gpt2Pieces, ContractionsAreLowerCaseAndFirst) {
  EXPECT_EQ(pieces_of("it's we'll I'VE"), (Pieces{"it", "'s", " we", "'ll", " I", "'", "VE"}));
  EXPECT_EQ(pieces_of("''s 's"), (Pieces{"''", "s", " '", "s"}));
  EXPECT_EQ(pieces_of("'rest'l'"), (Pieces{"'re", "st", "'", "l", "'"}));
}

TEST(Gpt2Pieces, InvalidBytesAreNeitherLetterNorNumberNorSpace) {
  EXPECT_EQ(pieces_of("a\x80\xFF b\xC3"), (Pieces{"a", "\x80\xFF", " b", "\xC3"}));
  EXPECT_EQ(pieces_of(" \xA0\x85!"), (Pieces{" \xA0\x85!"}));
  EXPECT_EQ(pieces_of("\xE2\x80"), (Pieces{"\xE2\x80"}));
}

TEST(Gpt2Pieces, CategoriesAreThoseOfUnicode16) {
  EXPECT_EQ(pieces_of("né1²Ⅷ"), (Pieces{"né", "1²Ⅷ"}));
  EXPECT_EQ(pieces_of("e\u0301"), (Pieces{"e", "\u0301"}));            // a mark is no letter
  EXPECT_EQ(pieces_of("a\U000105C0"), (Pieces{"a\U000105C0"}));        // a letter since 16.0
  EXPECT_EQ(pieces_of("1\U0001CCF0a"), (Pieces{"1\U0001CCF0", "a"}));  // a number since 16.0
  EXPECT_EQ(pieces_of("a\x1C\u180E"), (Pieces{"a", "\x1C\u180E"}));    // not White_Space
}

TEST(Gpt2Pieces, BoundariesAreWherePiecesEnd) {
  constexpr std::string_view kLetters = "  \n\ta'sl1.\xC2\xA0\x80";
  for (uint64_t text_number = 0; text_number < 200; ++text_number) {
    std::string text;
    for (uint64_t i = 0; i < 60; ++i) {
      text += kLetters[random_below(3, text_number, i, kLetters.size())];
    }
    std::vector<bool> ends(text.size() + 1);
    for (size_t end = 0; end < text.size();) ends[end = gpt2_piece_end(text, end)] = true;
    for (size_t i = 0; i <= text.size(); ++i) {
      size_t boundary = gpt2_piece_boundary(text, i);
      EXPECT_GE(boundary, i);
      EXPECT_TRUE(ends[boundary]) << boundary << " in " << text;
    }
  }
  EXPECT_EQ(gpt2_piece_boundary("abc def", 2), 3u);
  EXPECT_EQ(gpt2_piece_boundary("abcdef", 2), 6u);
  EXPECT_EQ(gpt2_piece_boundary("", 0), 0u);
}

}  // namespace
}  // namespace tessera
