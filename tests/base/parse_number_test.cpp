#include "base/parse_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace tessera {
namespace {

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int>("0"), 0);
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<int>("007"), 7);
  for (const char* text : {"", " ", "-", "+1", "--1", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "1a"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << '\'' << text << '\'';
  EXPECT_EQ(parse_number<int>(std::string_view()), std::nullopt);
  EXPECT_EQ(parse_number<int>(std::string_view("1\0", 2)), std::nullopt);
  EXPECT_EQ(parse_number<int>(std::string_view("123").substr(0, 2)), 12);
}

TEST(ParseNumber, IsNothingWhereItDoesNotFit) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(parse_number<int64_t>("9223372036854775807"), kMost);
  EXPECT_EQ(parse_number<int64_t>("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_number<int64_t>("-9223372036854775808"), -kMost - 1);
  EXPECT_EQ(parse_number<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_number<uint64_t>("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_number<uint16_t>("65535"), 65535);
  EXPECT_EQ(parse_number<uint16_t>("65536"), std::nullopt);
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<unsigned>("-0"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e309"), std::nullopt);
}

TEST(ParseNumber, KnowsOtherBases) {
  EXPECT_EQ(parse_number<uint64_t>("ffffffffffffffff", 16), UINT64_MAX);
  EXPECT_EQ(parse_number<uint8_t>("aB", 16), 0xab);
  EXPECT_EQ(parse_number<int>("777", 8), 511);
  for (const char* text : {"", "0xff", "fg", "-1"})
    EXPECT_EQ(parse_number<uint64_t>(text, 16), std::nullopt) << '\'' << text << '\'';
  EXPECT_EQ(parse_number<int>("8", 8), std::nullopt);
}

TEST(ParseNumber, ReadsFloatingPointNumbersInAnyNotation) {
  EXPECT_EQ(parse_number<double>("0.1"), 0.1);
  EXPECT_EQ(parse_number<double>("-2.5e-3"), -2.5e-3);
  EXPECT_EQ(parse_number<double>(".5"), 0.5);
  EXPECT_EQ(parse_number<double>("3"), 3);
  EXPECT_EQ(parse_number<double>("inf"), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_number<double>("nan").value_or(0)));
  for (const char* text : {"", "+1", " 1", "1 ", "1,5", "1e", "0x1p3", "e5", ".", "1.5s"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << '\'' << text << '\'';
}

}  // namespace
}  // namespace tessera
