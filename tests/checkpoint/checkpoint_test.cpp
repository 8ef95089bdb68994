#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(Checkpoint, LoadsWhatWasSaved) {
  ScratchDirectory scratch;
  const std::string run = R"({"step": 20, "seed": 1})";
  fs::path path = save(scratch / "deep/er", 20, 0, "llama_v3", run);
  EXPECT_EQ(path, scratch / "deep/er/llama_v3-20steps");
  EXPECT_EQ(names_in(path), (Names{"state.safetensors", "run.json", "manifest.json"}));
  EXPECT_EQ(names_in(scratch / "deep/er"), Names{"llama_v3-20steps"});

  CheckpointReader reader(path);
  EXPECT_EQ(reader.run_json(), run);
  EXPECT_EQ(reader.manifest().tensors.size(), 2u);
  State state(0);
  reader.load_all(state.targets());
  EXPECT_EQ(state.counter, 20);
  EXPECT_EQ(state.weight, std::vector<float>(12, 20));
}

TEST(Checkpoint, LoadsTheTensorsAskedFor) {
  ScratchDirectory scratch;
  CheckpointReader reader(save(scratch.path(), 5));
  State state(0);
  auto targets = state.targets();
  targets.resize(1);
  reader.load_some(targets);
  EXPECT_EQ(state.weight[11], 5);
  EXPECT_EQ(state.counter, 0);
  EXPECT_EQ(user_error([&] { reader.load_all(targets); }),
            "checkpoint '" + reader.path().string() +
                "' does not fit: its tensor 'step', i64 [], is not part of this run");
}

// The rank that has the first element of a box reads all of it, others what they need.
TEST(Checkpoint, IsReadOnceAndWhatIsReadIsHashed) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 5);
  auto load = [&](int64_t row, int64_t rows, int64_t bytes) {
    CheckpointReader reader(path);
    std::vector<float> got(12, 0), expected(12, 0);
    std::fill_n(expected.begin(), rows * 4, 5);
    const StateTarget target{
        "layers.0.w", DType::kF32, {3, 4}, {{row, 0}, {rows, 4}}, into(got.data())};
    ASSERT_EQ(reader.bytes_read(), 0);
    reader.load_some(std::vector{target});
    EXPECT_EQ(got, expected);
    EXPECT_EQ(reader.bytes_read(), bytes);
  };
  load(0, 3, 48);
  load(0, 1, 48);
  load(1, 1, 16);
  load(2, 1, 16);

  const Manifest manifest = read_manifest(path);
  std::string content = read_file(path / "state.safetensors");
  char& last = content[manifest.tensors[0].boxes[0].offset + 47];
  last = static_cast<char>(last ^ 1);
  write_file_atomic(path / "state.safetensors", content);
  for (int64_t rows : {1, 3}) {
    const std::string message = message_of<DamagedCheckpoint>([&] { load(0, rows, 48); });
    expect_contains(message, (path / "state.safetensors").string());
    expect_contains(message, "tensor 'layers.0.w' [0:3, 0:4] has hash ");
  }
  load(1, 1, 16);
}

TEST(Checkpoint, NamesTheTensorThatDoesNotFitAndBothShapes) {
  ScratchDirectory scratch;
  CheckpointReader reader(save(scratch.path(), 5));
  State state(0);
  const std::string start = "checkpoint '" + reader.path().string() + "' does not fit: ";
  auto refused = [&](const std::vector<StateTarget>& targets) {
    std::string message = user_error([&] { reader.load_all(targets); });
    EXPECT_EQ(state.counter, 0) << "a buffer was touched before the check";
    EXPECT_EQ(state.weight, std::vector<float>(12, 0));
    return message;
  };
  auto targets = state.targets();
  std::swap(targets[0], targets[1]);  // the one that fits comes first
  targets[1].shape = {4, 3};
  EXPECT_EQ(refused(targets),
            start + "tensor 'layers.0.w' is f32 [3, 4] there, expected f32 [4, 3]");
  targets[1].shape = {3, 4};
  targets[1].dtype = DType::kI64;
  EXPECT_EQ(refused(targets),
            start + "tensor 'layers.0.w' is f32 [3, 4] there, expected i64 [3, 4]");
  targets[1].tensor = "layers.1.w";
  EXPECT_EQ(refused(targets), start + "it has no tensor 'layers.1.w', expected as i64 [3, 4]");
}

TEST(Checkpoint, DamageIsAnErrorThatNamesTheFile) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 5, 0, "llama", "{\"a\": 1}");
  auto flipped = [&](const std::string& name, size_t position) {
    std::string whole = read_file(path / name), broken = whole;
    broken[position < whole.size() ? position : whole.size() - 1] ^= 1;
    make_file(path / name, broken);
    auto read = [&] {
      CheckpointReader reader(path);
      State state(0);
      reader.verify(state.targets());
    };
    std::string message =
        name == "manifest.json" ? user_error(read) : message_of<DamagedCheckpoint>(read);
    make_file(path / name, whole);
    return message;
  };
  const size_t end = read_file(path / "state.safetensors").size();
  for (size_t position : {end - 48 - 8, end - 20, end - 1}) {
    std::string message = flipped("state.safetensors", position);
    expect_contains(message, (path / "state.safetensors").string() + "': tensor '");
    expect_contains(message, "has hash ");
  }
  expect_contains(flipped("run.json", 3), (path / "run.json").string() + "' has hash ");
  expect_contains(flipped("manifest.json", 0), (path / "manifest.json").string());
  EXPECT_NO_THROW(CheckpointReader{path});

  make_file(path / "run.json", "{\"a\": 12}");
  expect_contains(message_of<DamagedCheckpoint>([&] { CheckpointReader reader(path); }),
                  "run.json' has 9 bytes, the manifest says 8");
  fs::remove(path / "run.json");
  expect_contains(message_of<DamagedCheckpoint>([&] { CheckpointReader reader(path); }),
                  "cannot read '" + (path / "run.json").string());
}

TEST(Checkpoint, TheManifestMustNameTheRecord) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 5);
  make_file(path / "manifest.json", to_json(Manifest{{{"state.safetensors", 2, 0}}}));
  expect_contains(user_error([&] { CheckpointReader reader(path); }),
                  "manifest.json' does not name 'run.json'");
}

TEST(Checkpoint, CannotBeSavedWhereTheDirectoryCannotBe) {
  ScratchDirectory scratch;
  make_file(scratch / "file");
  expect_contains(user_error([&] { save(scratch / "file/below", 1); }),
                  (scratch / "file/below").string());
}

}  // namespace
}  // namespace tessera
