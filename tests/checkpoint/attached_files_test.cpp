// Files that go with a checkpoint, in its folder `tokenizer`: written, checked and removed with it.
#include "checkpoint/attached_files.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/directory.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::vector<AttachedFile> kFiles{{"tokenizer.json", "{}"}, {"merges.txt", "a b"}};

fs::path save_with_files(const fs::path& directory, int64_t step, const Retention& retention = {}) {
  State state(step);
  return save_boxes(directory, "llama", step, state.boxes(), "{}", retention, {}, kFiles);
}

TEST(AttachedFiles, GoWithTheCheckpoint) {
  ScratchDirectory scratch;
  fs::path path = save_with_files(scratch.path(), 1);
  EXPECT_EQ(names_in(path / "tokenizer"), (Names{"tokenizer.json", "merges.txt"}));
  EXPECT_EQ(read_file(path / "tokenizer/merges.txt"), "a b");
  EXPECT_NO_THROW(CheckpointReader{path});
  make_file(path / "tokenizer/merges.txt", "b a");
  expect_contains(message_of<DamagedCheckpoint>([&] { CheckpointReader{path}; }),
                  "tokenizer/merges.txt' has hash");
  fs::remove(path / "tokenizer/merges.txt");
  testing::internal::CaptureStderr();
  EXPECT_EQ(newest_complete_checkpoint(scratch.path()), std::nullopt);
  expect_contains(testing::internal::GetCapturedStderr(), "tokenizer/merges.txt'");
}

TEST(AttachedFiles, AreRemovedWithItAndNothingElse) {
  ScratchDirectory scratch;
  fs::path first = save_with_files(scratch.path(), 1);
  save_with_files(scratch.path(), 2, 1);
  EXPECT_EQ(names_in(scratch.path()), Names{"llama-2steps"});
  make_file(scratch / "llama-2steps/tokenizer/mine.txt");
  save_with_files(scratch.path(), 3, 1);
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-2steps", "llama-3steps"}));
  EXPECT_EQ(names_in(scratch / "llama-2steps"), Names{"tokenizer"});
  EXPECT_EQ(names_in(scratch / "llama-2steps/tokenizer"), Names{"mine.txt"});
}

TEST(AttachedFiles, AFolderElsewhereIsNotCleared) {
  ScratchDirectory scratch;
  fs::path first = save_with_files(scratch.path(), 1);
  fs::rename(first / "tokenizer", scratch / "mine");
  fs::create_directory_symlink(scratch / "mine", first / "tokenizer");
  save_with_files(scratch.path(), 2, 1);
  EXPECT_EQ(names_in(scratch / "mine").size(), 2u);
}

// Killed while it is written, before there is a manifest.
TEST(AttachedFiles, HalfWrittenOnesAreRemoved) {
  ScratchDirectory scratch;
  fs::path half = scratch / "half";
  write_attached(half, kFiles);
  make_file(half / "tokenizer/vocab.json.tmp-7");
  make_file(half / "mine.txt");
  remove_attached(half);
  EXPECT_EQ(names_in(half), Names{"mine.txt"});
}

TEST(AttachedFiles, OfADamagedCheckpointGoWhenItIsReplaced) {
  ScratchDirectory scratch;
  make_file(save_with_files(scratch.path(), 1) / kManifestName, "{");
  testing::internal::CaptureStderr();
  save_with_files(scratch.path(), 1);
  EXPECT_EQ(names_in(scratch.path()), Names{"llama-1steps"});
  save_with_files(scratch.path(), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-1steps", "llama-2steps"}));
}

TEST(AttachedFiles, TheBestStaysBesideTheNewest) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20, 30, 40}) save(scratch.path(), step);
  State state(50);
  auto save_keeping = [&](int64_t step, const std::string& best) {
    save_boxes(scratch.path(), "llama", step, state.boxes(), "{}", {2, best});
  };
  save_keeping(50, "llama-20steps");
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-20steps", "llama-40steps", "llama-50steps"}));
  save_keeping(60, "llama-60steps");
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-50steps", "llama-60steps"}));
}

TEST(AttachedFiles, AManifestNamesOnlyTheirFolder) {
  for (const char* name : {"tokenizer/a", "tokenizer/tokenizer.json", "data/lanes.bin"})
    EXPECT_TRUE(is_attached_name(name)) << name;
  for (const char* name : {"", "tokenizer", "tokenizer/", "tokenizer/..", "tokenizer/a/b",
                           "other/a", "/tokenizer/a", "../tokenizer/a"})
    EXPECT_FALSE(is_attached_name(name)) << name;
}

}  // namespace
}  // namespace tessera
