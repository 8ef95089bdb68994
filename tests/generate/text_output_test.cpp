#include "generate/text_output.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const std::string kReplacement = "\xef\xbf\xbd";

// The text, given byte by byte, or in pieces of `size`; between "|" what came out at once.
std::string shown(std::string_view text, std::vector<std::string> stops = {}, size_t size = 1) {
  TextOutput output(std::move(stops));
  std::string all;
  for (size_t i = 0; i < text.size(); i += size) all += output.add(text.substr(i, size)) + "|";
  return all + output.finish();
}
std::string joined(std::string_view text, std::vector<std::string> stops = {}, size_t size = 1) {
  std::string all = shown(text, std::move(stops), size);
  std::erase(all, '|');
  return all;
}

TEST(TextOutput, CharactersAreShownWhole) {
  EXPECT_EQ(shown("ab"), "a|b|");
  EXPECT_EQ(shown("\xc3\xa9"), "|\xc3\xa9|");
  EXPECT_EQ(shown("\xe2\x82\xac!"), "||\xe2\x82\xac|!|");
  EXPECT_EQ(shown("\xf0\x9f\x98\x80"), "|||\xf0\x9f\x98\x80|");
  // Several characters and a half in one token.
  EXPECT_EQ(shown("a\xc3\xa9\xe2\x82\xac", {}, 4), "a\xc3\xa9|\xe2\x82\xac|");
}

TEST(TextOutput, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(joined("a\xff"
                   "b"),
            "a" + kReplacement + "b");
  EXPECT_EQ(joined("\x80\x80"), kReplacement + kReplacement);
  // Cut off at the end, and by a character: one replacement for the part.
  EXPECT_EQ(shown("\xf0\x9f\x98"), "|||" + kReplacement);
  EXPECT_EQ(joined("\xf0\x9f\x98z"), kReplacement + "z");
  EXPECT_EQ(joined("\xe2\x82\xe2\x82\xac"), kReplacement + "\xe2\x82\xac");
  // Overlong, surrogate, too large: the second byte cannot follow.
  EXPECT_EQ(joined("\xc0\xaf"), kReplacement + kReplacement);
  EXPECT_EQ(joined("\xed\xa0\x80"), kReplacement + kReplacement + kReplacement);
  EXPECT_EQ(joined("\xf4\x90"), kReplacement + kReplacement);
  EXPECT_EQ(joined("\xf5"), kReplacement);
  for (int lead = 0x80; lead < 0x100; ++lead) {  // never a byte that is no text
    std::string text = joined(std::string(1, static_cast<char>(lead)) + "\x90\x20");
    EXPECT_EQ(text.back(), ' ');
    EXPECT_TRUE(text.starts_with(kReplacement) || lead < 0xe0) << lead;
  }
}

TEST(TextOutput, StopTextsEndIt) {
  for (size_t size : {1, 2, 3, 20}) {
    TextOutput output({"END", "\n\n"});
    std::string all, text = "one\ntwo\n\nthree END";
    for (size_t i = 0; i < text.size() && !output.stopped(); i += size)
      all += output.add(text.substr(i, size));
    EXPECT_TRUE(output.stopped());
    EXPECT_EQ(all + output.finish(), "one\ntwo") << size;
    EXPECT_EQ(output.add("more"), "");
  }
  EXPECT_EQ(joined("xENy END z", {"END"}, 4), "xENy ");
}

TEST(TextOutput, WhatMayBecomeAStopTextIsHeldBack) {
  EXPECT_EQ(shown("aENbEND", {"END"}), "a|||ENb||||");
  EXPECT_EQ(shown("EEND", {"END"}), "|E|||");
  EXPECT_EQ(shown("xEN", {"END"}), "x|||EN");
  // The longer of two beginnings counts.
  EXPECT_EQ(shown("abab!", {"ababc", "b!"}), "||||aba|");
  // One stop text inside another: the one that begins first, then the one that ends first.
  EXPECT_EQ(joined("aXYZ", {"XYZ", "Y"}), "aX");
  EXPECT_EQ(joined("aXYZ", {"XYZ", "Y"}, 4), "a");
  // A character that the stop text's beginning cuts.
  EXPECT_EQ(joined("\xc3\xa9\xc3\xaa", {"\xc3\xab"}), "\xc3\xa9\xc3\xaa");
}

}  // namespace
}  // namespace tessera
