#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

template <class T>
std::vector<T> values(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  if (!tensor) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<T> result(tensor->bytes / sizeof(T));
  std::memcpy(result.data(), file.bytes(*tensor).data(), tensor->bytes);
  return result;
}

std::string file_content(const std::string& header, size_t data_bytes) {
  uint64_t length = header.size();
  std::string content(reinterpret_cast<const char*>(&length), sizeof length);
  return content + header + std::string(data_bytes, '\1');
}

SafetensorsHeader parse(const std::string& content) {
  return parse_safetensors(std::as_bytes(std::span(content)), "model.safetensors");
}

SafetensorsHeader parse(const std::string& header, size_t data_bytes) {
  return parse(file_content(header, data_bytes));
}

// The header is refused with a message that names the file and contains `part`.
void expect_refused(const std::string& header, size_t data_bytes, const std::string& part) {
  std::string message = user_error([&] { parse(header, data_bytes); });
  EXPECT_TRUE(message.starts_with("'model.safetensors' is not a valid safetensors file: "))
      << message;
  expect_contains(message, part);
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsAFileOfTheReferencePackage) {
  SafetensorsFile file(TESSERA_SOURCE_DIR "/tests/checkpoint/data/reference.safetensors");
  EXPECT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.metadata(),
            (SafetensorsMetadata{{"format", "pt"}, {"note", "a \"quoted\" word"}}));
  EXPECT_EQ(file.find("embed.weight")->dtype, DType::kF32);
  EXPECT_EQ(file.find("embed.weight")->shape, (Shape{2, 3}));
  EXPECT_EQ(values<float>(file, "embed.weight"),
            (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f}));
  EXPECT_EQ(file.find("half")->dtype, DType::kF16);
  EXPECT_EQ(values<uint16_t>(file, "half"), (std::vector<uint16_t>{0x3e00, 0xc000}));
  EXPECT_EQ(file.find("step")->shape, Shape{});
  EXPECT_EQ(values<int64_t>(file, "step"), std::vector<int64_t>{7});
  EXPECT_EQ(values<int32_t>(file, "ids"), (std::vector<int32_t>{1, -2}));
  EXPECT_EQ(file.find("mask")->dtype, DType::kBool);
  EXPECT_EQ(values<uint8_t>(file, "mask"), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(file.find("empty")->shape, (Shape{0, 4}));
  EXPECT_EQ(file.find("empty")->bytes, 0u);
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
}

TEST(Safetensors, WritesWhatItReads) {
  ScratchDirectory scratch;
  bool flag = true;
  std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  std::vector<BF16> half = {BF16(0.5f), BF16(-3.0f), BF16(7.0f)};
  int64_t step = 1234567890123;
  std::vector<TensorView> tensors = {{"flag", DType::kBool, {}, &flag},
                                     {"half \"µ\"", DType::kBF16, {3}, half.data()},
                                     {"weight", DType::kF32, {3, 2}, weight.data()},
                                     {"none", DType::kF64, {5, 0}, nullptr},
                                     {"step", DType::kI64, {}, &step}};
  FileDigest digest = write_safetensors(scratch / "a.safetensors", tensors);
  std::string content = read_file(scratch / "a.safetensors");
  EXPECT_EQ(digest.bytes, content.size());
  EXPECT_EQ(digest.hash, hash_text(content));

  SafetensorsFile file(scratch / "a.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const TensorView& written : tensors) {
    const TensorInfo* read = file.find(written.name);
    ASSERT_NE(read, nullptr) << written.name;
    EXPECT_EQ(read->dtype, written.dtype);
    EXPECT_EQ(read->shape, written.shape);
    EXPECT_EQ(read->offset % static_cast<uint64_t>(size_of(read->dtype)), 0u) << written.name;
    std::vector<std::byte> expected(written.bytes());
    written.data.read(0, expected);
    EXPECT_TRUE(std::ranges::equal(file.bytes(*read), expected)) << written.name;
  }
}

TEST(Safetensors, AnEmptyFileOfTensorsIsLegal) {
  ScratchDirectory scratch;
  write_safetensors(scratch / "a.safetensors", {}, {});
  SafetensorsFile file(scratch / "a.safetensors");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, TensorsMayStandInAnyOrderInTheHeader) {
  auto header = parse("{\"b\":" + tensor("F32", "[1]", "[4,8]") +
                          ",\"a\":" + tensor("I32", "[1]", "[0,4]") + "}   ",
                      8);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
}

TEST(Safetensors, RefusesMoreTensorsThanAnyModelHas) {
  constexpr int kMost = 1 << 18;
  std::string header = "{";
  for (int i = 0; i < kMost; ++i)
    header += cat("\"t", i, "\":", tensor("BOOL", "[0]", "[0,0]"), i + 1 < kMost ? "," : "");
  EXPECT_EQ(parse(header + "}", 0).tensors.size(), size_t{kMost});
  expect_refused(header + ",\"one\":" + tensor("U8", "[0]", "[0,0]") + "}", 0,
                 "more than 262144 tensors in one file");
  std::string metadata;
  for (int i = 0; i <= 1 << 16; ++i) metadata += cat(i > 0 ? "," : "", "\"k", i, "\":\"\"");
  expect_refused("{\"__metadata__\":{" + metadata + "}}", 0, "more than 65536 entries");
}

TEST(Safetensors, RefusesABadLength) {
  auto message = [](const std::string& content) { return user_error([&] { parse(content); }); };
  expect_contains(message(""), "shorter than 8 bytes");
  expect_contains(message("1234567"), "shorter than 8 bytes");
  expect_contains(message(std::string(8, '\xff')), "limit 100 MB");
  std::string cut = file_content("{}      ", 0);
  EXPECT_NO_THROW(parse(cut));
  expect_contains(message(cut.substr(0, 12)), "truncated");
}

TEST(Safetensors, RefusesAHeaderThatIsNotTheFormats) {
  const std::string good = tensor("F32", "[1]", "[0,4]");
  expect_refused("", 0, "does not start with '{'");
  expect_refused(" {}", 0, "does not start with '{'");
  expect_refused("[1]", 0, "does not start with '{'");
  expect_refused("{\"a\":" + good, 4, "broken JSON");
  expect_refused("{\"a\":" + good + "} x", 4, "broken JSON");
  expect_refused(std::string("{}\0\0", 4), 0, "NUL");
  expect_refused("{\"a\xff\":" + good + "}", 4, "broken JSON");
  expect_refused(R"({"a":1})", 0, "'a' has a number where the format has none");
  expect_refused(R"({"a":[1]})", 0, "'a' has an array");
  expect_refused(R"({"a":null})", 0, "'a' has null");
  expect_refused(R"({"a":{"shape":{}}})", 0, "tensor 'a': 'shape' has an object");
  expect_refused(R"({"a":{"shape":[[1]]}})", 0, "'shape' has an array");
  expect_refused(R"({"a":{"shape":[-1]}})", 0, "'shape' has a negative number");
  expect_refused(R"({"a":{"shape":[1.0]}})", 0, "'shape' has a fraction");
  expect_refused(R"({"a":{"shape":[true]}})", 0, "'shape' has a truth value");
  expect_refused(R"({"a":{"shape":"1"}})", 0, "'shape' has a string");
  expect_refused(R"({"a":{"dtype":["F32"]}})", 0, "'dtype' has an array");
  expect_refused(R"({"a":{"stride":[1]}})", 0, "tensor 'a': unknown key 'stride'");
  expect_refused(R"({"__metadata__":{"n":1}})", 0, "'n' has a number");
  expect_refused("{\"" + std::string(2000, 'a') + "\":" + good + "}", 4, "longer than 1024 bytes");
}

TEST(Safetensors, RefusesMissingAndRepeatedKeys) {
  const std::string good = tensor("F32", "[1]", "[0,4]");
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "'a': 'dtype' is missing");
  expect_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "'a': 'shape' is missing");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "'a': 'data_offsets' must be two");
  expect_refused("{\"a\":" + tensor("F32", "[1]", "[0,4,8]") + "}", 4, "must be two numbers");
  expect_refused(R"({"a":{"dtype":"F32","dtype":"F32"}})", 4, "'dtype' appears twice");
  expect_refused(R"({"a":{"shape":[1],"shape":[1]}})", 4, "'shape' appears twice");
  expect_refused("{\"a\":" + good + ",\"a\":" + good + "}", 4, "tensor 'a' appears twice");
  expect_refused("{\"a\":" + good + ",\"\\u0061\":" + tensor("F32", "[1]", "[4,8]") + "}", 8,
                 "tensor 'a' appears twice");
  expect_refused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "metadata key 'k' appears twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice");
}

TEST(Safetensors, RefusesBytesThatDisagreeWithTheShape) {
  expect_refused("{\"w\":" + tensor("F32", "[3]", "[0,8]") + "}", 8,
                 "tensor 'w': data_offsets give 8 bytes, but f32 [3] takes 12");
  expect_refused("{\"w\":" + tensor("BF16", "[2]", "[0,8]") + "}", 8, "bf16 [2] takes 4");
  expect_refused("{\"w\":" + tensor("F32", "[2]", "[0,8]") + "}", 4, "truncated");
  expect_refused("{\"w\":" + tensor("F32", "[2]", "[8,0]") + "}", 8, "data_offsets [8, 0]");
  expect_refused("{\"w\":" + tensor("U8", "[4]", "[0,8]") + "}", 8, "U8 [4] takes 4");
  expect_refused("{\"w\":" + tensor("F4", "[8]", "[0,8]") + "}", 8,
                 "tensor 'w': element type 'F4' is not known");
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  const std::string huge = "4611686018427387904";  // 2^62
  expect_refused("{\"w\":" + tensor("F32", "[" + huge + "]", "[0,0]") + "}", 0, "addressed");
  expect_refused("{\"w\":" + tensor("F32", "[" + huge + ",4,0]", "[0,0]") + "}", 0, "addressed");
  expect_refused("{\"w\":" + tensor("F32", "[18446744073709551615]", "[0,0]") + "}", 0,
                 "addressed");
  expect_refused("{\"w\":" + tensor("F32", "[18446744073709551616]", "[0,0]") + "}", 0,
                 "'shape' has a fraction");  // past 64 bits JSON numbers are floating
  std::string ones = "[1";
  for (int i = 0; i < 40; ++i) ones += ",1";
  expect_refused("{\"w\":" + tensor("F32", ones + "]", "[0,4]") + "}", 4, "more than 32 numbers");
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const std::string first = "{\"a\":" + tensor("F32", "[2]", "[0,8]") + ",\"b\":";
  EXPECT_NO_THROW(parse(first + tensor("F32", "[1]", "[8,12]") + "}", 12));
  expect_refused(first + tensor("F32", "[1]", "[4,8]") + "}", 8, "tensor 'b' overlaps");
  expect_refused(first + tensor("F32", "[0]", "[4,4]") + "}", 8, "tensor 'b' overlaps");
  expect_refused(first + tensor("F32", "[1]", "[12,16]") + "}", 16, "tensor 'b' leaves a hole");
  expect_refused(first + tensor("F32", "[1]", "[8,12]") + "}", 13,
                 "1 bytes at its end belong to no tensor");
  expect_refused("{}", 4, "4 bytes at its end");
}

TEST(Safetensors, NamesAFileThatCannotBeRead) {
  EXPECT_EQ(user_error([] { SafetensorsFile("/nonexistent/x.safetensors"); }),
            "cannot read '/nonexistent/x.safetensors': No such file or directory");
}

TEST(Safetensors, WritingTheSameNameTwiceIsABug) {
  ScratchDirectory scratch;
  float x = 0;
  std::vector<TensorView> twice = {{"w", DType::kF32, {}, &x}, {"w", DType::kF32, {}, &x}};
  EXPECT_THROW(write_safetensors(scratch / "a", twice), InternalError);
  std::vector<TensorView> reserved = {{"__metadata__", DType::kF32, {}, &x}};
  EXPECT_THROW(write_safetensors(scratch / "a", reserved), InternalError);
  std::vector<TensorView> not_utf8 = {{"\xff", DType::kF32, {}, &x}};
  EXPECT_THROW(write_safetensors(scratch / "a", not_utf8), UserError);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace tessera
