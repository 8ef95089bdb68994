#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(Manifest, ReadsWhatItWrites) {
  Manifest manifest = parse_manifest(to_json({{{"a \"b\"", 7, 0xabcull}, {"c", 0, ~0ull}}}), "m");
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[0].name, "a \"b\"");
  EXPECT_EQ(manifest.files[0].bytes, 7u);
  EXPECT_EQ(manifest.files[0].hash, 0xabcull);
  EXPECT_EQ(manifest.files[1].hash, ~0ull);
}

const CheckpointOrigin kOrigin{"00112233445566778899aabbccddeeff",
                               "ffeeddccbbaa99887766554433221100"};

TEST(Manifest, SaysWhoWroteIt) {
  Manifest manifest = parse_manifest(to_json({{{"a", 7, 1}}, kOrigin}), "m");
  EXPECT_EQ(manifest.origin.run, kOrigin.run);
  EXPECT_EQ(manifest.origin.job, kOrigin.job);
  EXPECT_EQ(parse_manifest(to_json({{{"a", 7, 1}}}), "m").origin.run, "");
}

TEST(Manifest, NoticesAFlippedBit) {
  const std::string json = to_json({{{"state", 1234, 0xabcull}, {"run.json", 5, 77}}, kOrigin});
  for (size_t at = 0; at < json.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = json;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        EXPECT_EQ(to_json(parse_manifest(flipped, "m")), json) << flipped;
      } catch (const UserError&) {
        // As it should be.
      }
    }
  }
}

TEST(Manifest, RefusesAnythingElse) {
  const std::string head = R"({"format": "tessera checkpoint", "version": 1, "files": )";
  auto entry = [&](const std::string& name, const std::string& bytes, const std::string& hash) {
    return head + R"([{"name": ")" + name + R"(", "bytes": )" + bytes + R"(, "xxh3": ")" + hash +
           "\"}]}";
  };
  const std::string hash = "0123456789abcdef";
  EXPECT_NO_THROW(parse_manifest(entry("a", "1", hash), "m"));
  struct Case {
    std::string json, part;
  };
  for (const Case& c : std::vector<Case>{
           {"", "not a JSON object"},
           {"[]", "not a JSON object"},
           {head, "not a JSON object"},
           {"{}", "format"},
           {R"({"format": 1})", "format"},
           {R"({"format": "tessera checkpoint"})", "'version' is missing"},
           {R"({"format": "tessera checkpoint", "version": 2, "files": []})", "version 2"},
           {head + "{}}", "'files' is missing"},
           {head + "[1]}", "not an object"},
           {head + R"([{"name": "a", "bytes": 1}]})", "lacks name, bytes or xxh3"},
           {entry("a", "-1", hash), "lacks name, bytes or xxh3"},
           {entry("a", "1", "0123"), "16 hexadecimal digits"},
           {entry("a", "1", "-123456789abcdef"), "16 hexadecimal digits"},
           {entry("", "1", hash), "not a plain file name"},
           {entry("..", "1", hash), "not a plain file name"},
           {entry("../a", "1", hash), "not a plain file name"},
           {entry("a\\u0000b", "1", hash), "not a plain file name"},
           {entry("manifest.json", "1", hash), "not a plain file name"}}) {
    SCOPED_TRACE(c.json);
    std::string message = user_error([&] { parse_manifest(c.json, "m"); });
    expect_contains(message, "'m' is not a valid checkpoint manifest: ");
    expect_contains(message, c.part);
  }
  std::string twice = to_json({{{"a", 1, 1}, {"a", 1, 1}}});
  expect_contains(user_error([&] { parse_manifest(twice, "m"); }), "twice");
}

TEST(Manifest, OfAbsurdSizeIsNotRead) {
  ScratchDirectory scratch;
  make_file(scratch / "manifest.json");
  fs::resize_file(scratch / "manifest.json", 1 << 30);
  expect_contains(user_error([&] { read_manifest(scratch.path()); }), "it has 1073741824 bytes");
}

}  // namespace
}  // namespace tessera
