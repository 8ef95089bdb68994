#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const CheckpointOrigin kOrigin{"00112233445566778899aabbccddeeff",
                               "ffeeddccbbaa99887766554433221100"};

TEST(Manifest, ReadsWhatItWrites) {
  Manifest manifest =
      parse_manifest(to_json(Manifest{{{"a \"b\"", 7, 0xabcull}, {"c", 0, ~0ull}}}), "m");
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[0].name, "a \"b\"");
  EXPECT_EQ(manifest.files[0].bytes, 7u);
  EXPECT_EQ(manifest.files[0].hash, 0xabcull);
  EXPECT_EQ(manifest.files[1].hash, ~0ull);
}

// A matrix in two boxes and a counter.
const std::vector<ManifestTensor> kTensors{
    {"layers.0.\"w\"",
     TensorRole::kWeight,
     DType::kF32,
     {3, 4},
     {{0, 100, {{0, 0}, {2, 4}}, 1}, {0, 132, {{2, 0}, {1, 4}}, 2}}},
    {"optimizer_step", TensorRole::kCounter, DType::kI64, {}, {{0, 148, {}, 0xabcull}}}};

TEST(Manifest, SaysWhereTensorsAre) {
  Manifest manifest = parse_manifest(to_json(Manifest{{{"s", 156, 1}}, kOrigin, kTensors}), "m");
  ASSERT_EQ(manifest.tensors.size(), 2u);
  const ManifestTensor &matrix = manifest.tensors[0], &counter = manifest.tensors[1];
  EXPECT_EQ(matrix.name, "layers.0.\"w\"");
  EXPECT_EQ(matrix.shape, (Shape{3, 4}));
  ASSERT_EQ(matrix.boxes.size(), 2u);
  EXPECT_EQ(matrix.boxes[1].box, (TensorBox{{2, 0}, {1, 4}}));
  EXPECT_EQ(matrix.boxes[1].offset, 132u);
  EXPECT_EQ(matrix.boxes[1].hash, 2u);
  EXPECT_EQ(counter.role, TensorRole::kCounter);
  EXPECT_EQ(counter.dtype, DType::kI64);
}

TEST(Manifest, RefusesBoxesThatDoNotMakeUpTheirTensor) {
  auto refused = [&](const std::function<void(ManifestTensor&)>& change, bool partial = false) {
    Manifest manifest{{{"s", 156, 1}}, kOrigin, kTensors};
    change(manifest.tensors[0]);
    return user_error([&] { parse_manifest(to_json(manifest), "m", partial); });
  };
  auto drop = [](ManifestTensor& t) { t.boxes.pop_back(); };
  expect_contains(refused(drop), "is not whole");
  Manifest part{{{"s", 156, 1}}, kOrigin, kTensors};
  drop(part.tensors[0]);
  EXPECT_NO_THROW(parse_manifest(to_json(part), "m", /*partial=*/true));
  expect_contains(refused([](ManifestTensor& t) { t.boxes.push_back(t.boxes[0]); }), "overlap");
  expect_contains(refused([](ManifestTensor& t) { t.boxes[1].box.begin[0] = 3; }),
                  "is not inside of it");
  expect_contains(refused([](ManifestTensor& t) { t.boxes[1].offset = 141; }),
                  "is not inside of 's'");
  expect_contains(refused([](ManifestTensor& t) { t.boxes[1].offset = ~uint64_t{0}; }),
                  "is not inside of 's'");
  expect_contains(refused([](ManifestTensor& t) { t.boxes[1].file = 1; }), "lacks file");
  expect_contains(refused([](ManifestTensor& t) { t.shape = {1 << 30, 1 << 30, 1 << 30}; }), "[");
  expect_contains(refused([](ManifestTensor& t) { t.name = "optimizer_step"; }), "twice");
}

TEST(Manifest, SaysWhoWroteIt) {
  Manifest manifest = parse_manifest(to_json(Manifest{{{"a", 7, 1}}, kOrigin}), "m");
  EXPECT_EQ(manifest.origin.run, kOrigin.run);
  EXPECT_EQ(manifest.origin.job, kOrigin.job);
  EXPECT_EQ(parse_manifest(to_json(Manifest{{{"a", 7, 1}}}), "m").origin.run, "");
}

TEST(Manifest, NoticesAFlippedBit) {
  const std::string json =
      to_json(Manifest{{{"state", 1234, 0xabcull}, {"run.json", 5, 77}}, kOrigin, kTensors});
  for (size_t at = 0; at < json.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = json;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(flipped, "m"), UserError) << flipped;
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
           {R"({"format": "tessera checkpoint", "version": 4, "files": []})", "version 4"},
           {head + "{}}", "'files' is missing"},
           {head + "[1]}", "not an object"},
           {head + R"([{"name": "a", "bytes": 1}]})", "lacks name, bytes or xxh3"},
           {entry("a", "-1", hash), "lacks name, bytes or xxh3"},
           {entry("a", "1", "0123"), "16 hexadecimal digits"},
           {entry("a", "1", "-123456789abcdef"), "16 hexadecimal digits"},
           {entry("a", "1", "0123456789abcdeF"), "16 hexadecimal digits"},
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
  std::string twice = to_json(Manifest{{{"a", 1, 1}, {"a", 1, 1}}});
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
