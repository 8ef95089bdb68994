#include "tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/sentencepiece.h"

namespace tessera {
namespace {

using Kind = SentencePieceModel::Kind;

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/sentencepiece/";

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

std::string number_field(uint32_t field, uint64_t number) {
  return varint(field << 3) + varint(number);
}

std::string bytes_field(uint32_t field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

std::string piece(std::string_view text, float score, Kind kind) {
  std::string raw(4, '\0');
  std::memcpy(raw.data(), &score, 4);
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + raw +
                            number_field(3, static_cast<uint64_t>(kind)));
}

// <unk> 0, <s> 1, </s> 2, ▁ 3, a 4, b 5, ▁a 6, ab 7
std::string small_pieces() {
  return piece("<unk>", 0, Kind::kUnknown) + piece("<s>", 0, Kind::kControl) +
         piece("</s>", 0, Kind::kControl) + piece("\u2581", -4, Kind::kNormal) +
         piece("a", -5, Kind::kNormal) + piece("b", -6, Kind::kNormal) +
         piece("\u2581a", -1, Kind::kNormal) + piece("ab", 0, Kind::kNormal);
}
const std::string kBpe = bytes_field(2, number_field(3, 2));

// "" if the file is read.
std::string error_of(const std::string& file) {
  try {
    SentencePieceTokenizer(parse_sentencepiece(file, "given.model"), "given.model");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void expect_error(const std::string& file, const std::string& cause) {
  std::string message = error_of(file);
  expect_contains(message, "given.model");
  expect_contains(message, cause);
}

std::vector<int32_t> ids_of(const std::string& file, std::string_view text) {
  SentencePieceTokenizer tokenizer(parse_sentencepiece(file, "given.model"), "given.model");
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(SentencePieceModel, DefaultsAreThoseOfTheFormat) {
  SentencePieceModel model =
      parse_sentencepiece(small_pieces() + bytes_field(1, bytes_field(1, "c")), "given.model");
  EXPECT_EQ(model.algorithm, SentencePieceModel::Algorithm::kUnigram);
  EXPECT_EQ(model.pieces.back().kind, Kind::kNormal);
  EXPECT_EQ(model.prefix, SentencePieceModel::Prefix::kSpace);
  EXPECT_TRUE(model.collapse_spaces && model.escape_spaces && !model.byte_fallback);
  EXPECT_EQ(model.unknown, 0);
  EXPECT_EQ(model.end_of_text, 2);
  EXPECT_EQ(model.document_prefix, Ids{1});
}

TEST(SentencePieceModel, FieldsThatAreNotKnownArePassedOver) {
  std::string unknown = number_field(900, 5) + bytes_field(901, "x") + varint(902 << 3 | 1) +
                        std::string(8, 'x') + varint(903 << 3 | 5) + std::string(4, 'x');
  SentencePieceModel model = parse_sentencepiece(small_pieces() + kBpe, "given.model");
  EXPECT_TRUE(parse_sentencepiece(small_pieces() + unknown + kBpe, "given.model") == model);
}

TEST(SentencePieceModel, HighestScoreMergesFirst) {
  EXPECT_EQ(ids_of(small_pieces() + kBpe, "ab"), (Ids{3, 7}));
  EXPECT_EQ(ids_of(small_pieces() + kBpe, "a ab"), (Ids{6, 3, 7}));
  EXPECT_EQ(ids_of(small_pieces() + kBpe, "aab"), (Ids{6, 7}));
}

TEST(SentencePieceModel, SpecialTokensAreTextButInPrompts) {
  SentencePieceTokenizer tokenizer(parse_sentencepiece(small_pieces() + kBpe, "given.model"), "");
  std::vector<int32_t> ids, prompt;
  tokenizer.encode("a</s>b", ids);
  EXPECT_EQ(std::ranges::count(ids, 2), 0);
  tokenizer.encode_prompt("a</s>b", prompt);
  EXPECT_EQ(prompt, (Ids{1, 6, 2, 3, 5}));
  EXPECT_EQ(tokenizer.decode(prompt), "<s>a</s> b");
  EXPECT_EQ(tokenizer.token_bytes(2), "</s>");
  EXPECT_EQ(tokenizer.token_bytes(6), " a");
  EXPECT_THROW(tokenizer.token_bytes(8), UserError);
}

TEST(SentencePieceModel, FingerprintsTellModelsApart) {
  SentencePieceModel model = parse_sentencepiece(small_pieces() + kBpe, "given.model");
  auto fingerprint = [](const SentencePieceModel& m) {
    return SentencePieceTokenizer(m, "").fingerprint();
  };
  const uint64_t original = fingerprint(model);
  EXPECT_EQ(fingerprint(model), original);
  std::vector<std::function<void(SentencePieceModel&)>> changes{
      [](SentencePieceModel& m) { m.pieces[7].score = -9; },
      [](SentencePieceModel& m) { m.pieces[7].text = "ba"; },
      [](SentencePieceModel& m) { m.pieces[7].kind = Kind::kUnused; },
      [](SentencePieceModel& m) { m.algorithm = SentencePieceModel::Algorithm::kUnigram; },
      [](SentencePieceModel& m) { m.collapse_spaces = false; },
      [](SentencePieceModel& m) { m.prefix = SentencePieceModel::Prefix::kNone; },
      [](SentencePieceModel& m) { m.document_prefix.clear(); },
      [](SentencePieceModel& m) { m.merges.emplace(); }};
  for (const auto& change : changes) {
    SentencePieceModel changed = model;
    change(changed);
    EXPECT_NE(fingerprint(changed), original);
  }
}

TEST(SentencePieceModel, EveryCutIsReadOrRefused) {
  std::string file = read_file(kGoldens + "bpe_nfkc.model");
  int refused = 0;
  for (size_t size = 0; size < file.size(); size += 1 + size / 50) {
    std::string message = error_of(file.substr(0, size));
    if (message.empty()) continue;  // it may end behind a piece
    expect_contains(message, "given.model");
    ++refused;
  }
  EXPECT_GT(refused, 50);
}

TEST(SentencePieceModel, DamagedFiles) {
  expect_error("", "no pieces");
  expect_error("{\"model\": 1}", "no SentencePiece model");
  expect_error(small_pieces() + "\x0f", "wire type 7");
  expect_error(small_pieces() + std::string(1, '\0'), "no valid number");
  expect_error(small_pieces() + "\x0a\xff\xff\xff\xff\x0f", "ends within a field");
  expect_error(small_pieces() + "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
               "ends within a field");
  expect_error(small_pieces() + std::string(11, '\xff'), "more than 10 bytes");
  expect_error(small_pieces() + number_field(1, 3), "field 1 has wire type 0, not 2");
  expect_error(small_pieces() + bytes_field(1, number_field(2, 3)), "field 2 has wire type 0");
  expect_error(std::string((size_t{64} << 20) + 1, '\n'), "64.0 MiB");
}

TEST(SentencePieceModel, PiecesThatDoNotFit) {
  auto with = [](std::string_view text, Kind kind, float score = 0) {
    return small_pieces() + piece(text, score, kind);
  };
  expect_error(with("", Kind::kNormal), "piece 8 is empty");
  expect_error(with("a", Kind::kNormal), "pieces 4 and 8 are both 'a'");
  expect_error(with("\xff", Kind::kNormal), "piece 8 is not UTF-8");
  expect_error(with(std::string("x\0", 2), Kind::kNormal), "piece 8 has a zero byte");
  expect_error(with(std::string(8000, 'x'), Kind::kNormal), "piece 8 has 8000 bytes");
  expect_error(with("<u>", Kind::kUnknown), "both the unknown piece");
  expect_error(with("<0x41>", Kind::kByte), "byte_fallback is not set");
  expect_error(with("<0xZ1>", Kind::kByte), "does not name a byte");
  expect_error(with("x", static_cast<Kind>(7)), "of type 7");
  expect_error(with("x", Kind::kNormal, std::numeric_limits<float>::quiet_NaN()), "not finite");
  expect_error(with("x", Kind::kNormal, -std::numeric_limits<float>::infinity()), "not finite");
  expect_error(with(std::string(2000, 'x'), Kind::kControl), "control pieces are too long");
}

TEST(SentencePieceModel, KindsThatAreNotSupported) {
  auto trainer = [](const std::string& fields) { return small_pieces() + bytes_field(2, fields); };
  expect_error(trainer(number_field(3, 3)), "model type 3");
  expect_error(trainer(number_field(24, 1)), "treat_whitespace_as_suffix");
  expect_error(trainer(number_field(35, 1)), "not every byte has a piece");
  expect_error(trainer(bytes_field(47, "<end>")), "no control piece '<end>'");
  expect_error(piece("</s>", 0, Kind::kControl) + piece("a", 0, Kind::kNormal), "no unknown piece");
  expect_error(small_pieces() + bytes_field(5, bytes_field(2, "rules")), "denormalizer");
}

std::string charsmap(const std::vector<uint32_t>& units, std::string_view strings) {
  std::vector<uint32_t> words{static_cast<uint32_t>(units.size() * 4)};
  words.insert(words.end(), units.begin(), units.end());
  return std::string(reinterpret_cast<const char*>(words.data()), words.size() * 4) +
         std::string(strings);
}

// One rule, x to yz, in the form of darts-clone: the root's children at offset 1, the leaf of x's
// node at offset 2.
std::vector<uint32_t> one_rule() {
  std::vector<uint32_t> units(256, 0);
  units[0] = 1u << 10;
  units[1 ^ 'x'] = (2u << 10) | 1u << 8 | 'x';
  units[1 ^ 'x' ^ 2] = 1u << 31;
  return units;
}

TEST(Charsmap, ReplacesAndKeeps) {
  const std::string_view strings("yz\0", 3);
  ASSERT_FALSE(Charsmap::fault(charsmap(one_rule(), strings)));
  Charsmap rules(charsmap(one_rule(), strings));
  EXPECT_EQ(rules.longest("xx").size, 1u);
  EXPECT_EQ(rules.longest("xx").replacement, "yz");
  EXPECT_EQ(rules.longest("y").size, 0u);
  EXPECT_FALSE(rules.keeps('x'));
  EXPECT_TRUE(rules.keeps('y'));
  EXPECT_TRUE(Charsmap("").empty());
}

// A unit that leads to itself for every byte: rules without end.
TEST(Charsmap, CirclesAreLeft) {
  EXPECT_EQ(Charsmap(charsmap(one_rule(), std::string_view("yz\0", 3))).rules("own").size(), 1u);
  std::vector<uint32_t> units(256);
  for (uint32_t i = 1; i < 256; ++i) units[i] = i | i << 10;  // byte i, back to the first unit
  std::string blob = charsmap(units, std::string_view("yz\0", 3));
  ASSERT_FALSE(Charsmap::fault(blob));
  expect_contains(user_error([&] { Charsmap(blob).rules("own.model"); }), "own.model");
}

TEST(Charsmap, FaultsAreFound) {
  const std::string_view strings("yz\0", 3);
  auto expect_fault = [&](const std::string& blob, const std::string& cause) {
    auto fault = Charsmap::fault(blob);
    ASSERT_TRUE(fault) << cause;
    expect_contains(*fault, cause);
    expect_error(small_pieces() + bytes_field(3, bytes_field(2, blob)), cause);
  };
  expect_fault("ab", "the size it names");
  expect_fault(std::string("\xff\xff\xff\xff", 4), "the size it names");
  expect_fault(charsmap({}, strings), "the size it names");
  expect_fault(charsmap(one_rule(), ""), "ends within a string");
  expect_fault(charsmap(one_rule(), "yz"), "ends within a string");
  std::vector<uint32_t> units = one_rule();
  units[0] |= 1u << 31;
  expect_fault(charsmap(units, strings), "no valid first unit");
  units = one_rule();
  units[1 ^ 'x'] |= 1u << 20;
  expect_fault(charsmap(units, strings), "points behind its units");
  units = one_rule();
  units[1 ^ 'x' ^ 2] = 0;
  expect_fault(charsmap(units, strings), "a key without a value");
  units = one_rule();
  units[1 ^ 'x' ^ 2] |= 3;
  expect_fault(charsmap(units, strings), "points behind its strings");
}

}  // namespace
}  // namespace tessera
