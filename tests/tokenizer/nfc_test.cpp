#include "tokenizer/nfc.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace tessera {
namespace {

std::string nfc(std::string_view text) {
  std::string buffer = "left over";
  return std::string(to_nfc(text, buffer));
}

TEST(Nfc, ComposesAndOrdersMarks) {
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00E9");
  EXPECT_EQ(nfc("x e\u0301 y o\u0302\u0323"), "x \u00E9 y \u1ED9");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // nothing composes, but the order is fixed
  EXPECT_EQ(nfc("\u212B\u2126"), "\u00C5\u03A9");    // singletons
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");    // Hangul
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");  // a mark without a letter
}

TEST(Nfc, KnowsUnicode9) {
  EXPECT_EQ(nfc("a\u0898\u0323"), "a\u0898\u0323");                  // a mark since 14.0
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");    // composes since 13.0
  EXPECT_EQ(nfc("a\U0001E944\U0001E94A"), "a\U0001E94A\U0001E944");  // a mark since 9.0
}

TEST(Nfc, WhatIsComposedIsTheTextItself) {
  std::string buffer;
  for (std::string_view text : {"", "plain", "caf\u00E9 \u4F60\u597D \U0001F642", "\xFF\x80 a"}) {
    EXPECT_EQ(to_nfc(text, buffer).data(), text.data());
  }
}

TEST(Nfc, InvalidBytesStayAndPart) {
  EXPECT_EQ(nfc("e\x80\u0301"), "e\x80\u0301");
  EXPECT_EQ(nfc("\xCC e\u0301\xCC"), "\xCC \u00E9\xCC");
  EXPECT_EQ(nfc("\xED\xA0\x80\u0301"), "\xED\xA0\x80\u0301");
}

// What is done piece by piece is what the whole is.
TEST(Nfc, IsIdempotentAndJoins) {
  constexpr std::string_view kParts[] = {"a",      "e",      "\u0301", "\u0323", "\u0327",
                                         "\u00E9", "\u1100", "\u1161", "\u11A8", "\uAC00",
                                         "\u0958", "\x80",   " ",      "\u4F60", "\u0344"};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 12; ++i) text += kParts[random_below(seed, 3, i, std::size(kParts))];
    EXPECT_EQ(nfc(nfc(text)), nfc(text)) << text;
    EXPECT_EQ(nfc(text + " " + text), nfc(text) + " " + nfc(text)) << text;
  }
}

TEST(Nfc, AMillionMarksAreNoTrouble) {
  std::string marks;
  for (int i = 0; i < 250'000; ++i) marks += i % 2 ? "\u0323" : "\u0307";
  std::string ordered = nfc("q" + marks);
  EXPECT_EQ(ordered.size(), marks.size() + 1);
  EXPECT_EQ(ordered.substr(0, 5), "q\u0323\u0323");
}

}  // namespace
}  // namespace tessera
