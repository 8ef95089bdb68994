#include "tokenizer/llama3_pieces.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text, int digits = 3) {
  Pieces pieces;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = llama3_piece_end(text, begin, digits);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
  }
  return pieces;
}

TEST(Llama3Pieces, WordsTakeOneCharacterWithThem) {
  EXPECT_EQ(pieces_of("Hello world_x\ty(z"), (Pieces{"Hello", " world", "_x", "\ty", "(z"}));
  EXPECT_EQ(pieces_of("\nx\r\ny"), (Pieces{"\n", "x", "\r\n", "y"}));  // but no line end
  EXPECT_EQ(pieces_of("a\u00A0\u00A0b"), (Pieces{"a", "\u00A0", "\u00A0b"}));
  EXPECT_EQ(pieces_of("--x"), (Pieces{"--", "x"}));
}

TEST(Llama3Pieces, NumbersComeInGroups) {
  EXPECT_EQ(pieces_of("12345 6"), (Pieces{"123", "45", " ", "6"}));
  EXPECT_EQ(pieces_of("12345 6", 1), (Pieces{"1", "2", "3", "4", "5", " ", "6"}));
  EXPECT_EQ(pieces_of("\u0661\u06621\u00BD7"), (Pieces{"\u0661\u06621", "\u00BD7"}));
}

TEST(Llama3Pieces, PunctuationTakesASpaceAndLineEndsWithIt) {
  EXPECT_EQ(pieces_of("a += b;\r\n\n c"), (Pieces{"a", " +=", " b", ";\r\n\n", " c"}));
  EXPECT_EQ(pieces_of("\t+\u2028\n"), (Pieces{"\t", "+", "\u2028\n"}));
}

TEST(Llama3Pieces, WhiteSpaceEndsBehindItsLastLineEnd) {
  EXPECT_EQ(pieces_of("a \n \r\n  b"), (Pieces{"a", " \n \r\n", " ", " b"}));
  EXPECT_EQ(pieces_of("a   \n   "), (Pieces{"a", "   \n", "   "}));
  EXPECT_EQ(pieces_of("a   b   "), (Pieces{"a", "  ", " b", "   "}));
  EXPECT_EQ(pieces_of("a \t 1"), (Pieces{"a", " \t", " ", "1"}));
}

TEST(Llama3Pieces, ContractionsAreOfAnyCaseAndFirst) {
  EXPECT_EQ(pieces_of("I'LL it'Sx 'Very"), (Pieces{"I", "'LL", " it", "'S", "x", " '", "Very"}));
  EXPECT_EQ(pieces_of("'re'Ve'M'd'T"), (Pieces{"'re", "'Ve", "'M", "'d", "'T"}));
  EXPECT_EQ(pieces_of("'\u017F'l"), (Pieces{"'\u017F", "'l"}));
  EXPECT_EQ(pieces_of("'word'"), (Pieces{"'word", "'"}));
}

TEST(Llama3Pieces, InvalidBytesAreNeitherLetterNorNumberNorSpace) {
  EXPECT_EQ(pieces_of("a\x80\xFF b\xC3\n"), (Pieces{"a", "\x80\xFF", " b", "\xC3\n"}));
  EXPECT_EQ(pieces_of("\x80z \xA0"), (Pieces{"\x80z", " \xA0"}));
}

}  // namespace
}  // namespace tessera
