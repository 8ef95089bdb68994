#include "checkpoint/directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The number of a process that has ended.
pid_t dead_process() {
  pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// The newest complete checkpoint and the warnings on the way.
struct Found {
  std::optional<fs::path> path;
  std::string warnings;
};
Found find_newest(const fs::path& path) {
  testing::internal::CaptureStderr();
  auto found = newest_complete_checkpoint(path);
  return {found, testing::internal::GetCapturedStderr()};
}

TEST(Newest, IsByStepNotByNameOrAge) {
  ScratchDirectory scratch;
  save(scratch.path(), 1000);
  save(scratch.path(), 200);
  save(scratch.path(), 30);
  EXPECT_EQ(find_newest(scratch.path()).path, scratch / "llama-1000steps");
  EXPECT_EQ(find_newest(scratch / "").path, scratch / "llama-1000steps");
}

TEST(Newest, OfACheckpointIsThatCheckpoint) {
  ScratchDirectory scratch;
  save(scratch.path(), 1000);
  save(scratch.path(), 200);
  EXPECT_EQ(find_newest(scratch / "llama-200steps").path, scratch / "llama-200steps");
  EXPECT_EQ(find_newest(scratch / "llama-200steps/").path, scratch / "llama-200steps");
  fs::rename(scratch / "llama-200steps", scratch / "favourite");
  EXPECT_EQ(find_newest(scratch / "favourite").path, scratch / "favourite");
}

TEST(Newest, IncompleteOnesAreSkippedWithAWarning) {
  ScratchDirectory scratch;
  save(scratch.path(), 10);
  fs::create_directories(scratch / "llama-30steps");
  save(scratch.path(), 20);
  make_file(scratch / "llama-20steps/run.json", "{\"cut\": 1}");
  save(scratch.path(), 15);
  make_file(scratch / "llama-15steps/manifest.json", "{");
  Found found = find_newest(scratch.path());
  EXPECT_EQ(found.path, scratch / "llama-10steps");
  expect_contains(found.warnings,
                  "] " + (scratch / "llama-30steps").string() +
                      "/manifest.json not found. Skipping this incomplete checkpoint\n");
  expect_contains(found.warnings, "run.json' has 10 bytes instead of 2. Skipping this damaged");
  expect_contains(found.warnings, "llama-15steps/manifest.json' is not a valid checkpoint");

  found = find_newest(scratch / "llama-30steps");
  EXPECT_EQ(found.path, std::nullopt);
  EXPECT_EQ(found.warnings, "") << "it was said";
  fs::remove(scratch / "llama-20steps/state.safetensors");
  EXPECT_EQ(find_newest(scratch / "llama-20steps").path, std::nullopt);
}

TEST(Newest, NothingFoundIsNoError) {
  ScratchDirectory scratch;
  EXPECT_EQ(find_newest(scratch.path()).path, std::nullopt);
  EXPECT_EQ(find_newest(scratch / "absent").path, std::nullopt);
  make_file(scratch / "llama-5steps");
  fs::create_directories(scratch / "llama-xsteps");
  fs::create_directories(scratch / "llama-5steps.tmp-99");
  Found found = find_newest(scratch.path());
  EXPECT_EQ(found.path, std::nullopt);
  EXPECT_EQ(found.warnings, "");
}

TEST(Newest, AFileIsAnError) {
  ScratchDirectory scratch;
  make_file(scratch / "weights.bin");
  expect_contains(user_error([&] { newest_complete_checkpoint(scratch / "weights.bin"); }),
                  "weights.bin' is a file; give a checkpoint or a directory of checkpoints");
}

TEST(Retention, KeepsTheNewestByStepOfThisModel) {
  ScratchDirectory scratch;
  save(scratch.path(), 7, 0, "gpt2");
  for (int64_t step : {100, 20, 3}) save(scratch.path(), step, 0);
  EXPECT_EQ(names_in(scratch.path()).size(), 4u);
  save(scratch.path(), 150, 2);
  EXPECT_EQ(names_in(scratch.path()), (Names{"gpt2-7steps", "llama-100steps", "llama-150steps"}));
}

TEST(Retention, NeverRemovesTheCheckpointJustWritten) {
  ScratchDirectory scratch;
  for (int64_t step : {100, 200}) save(scratch.path(), step);
  save(scratch.path(), 50, 1);  // a run resumed from an older point
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-200steps", "llama-50steps"}));
}

TEST(Retention, LeavesForeignAndIncompleteThingsAlone) {
  ScratchDirectory scratch;
  fs::create_directories(scratch / "llama-1steps");      // incomplete
  fs::create_directories(scratch / "llama-2steps-old");  // not ours
  make_file(scratch / "llama-3steps");
  make_file(scratch / "notes.txt");
  save(scratch / "elsewhere", 4);
  fs::create_directory_symlink(scratch / "elsewhere/llama-4steps", scratch / "llama-4steps");
  save(scratch.path(), 5);
  make_file(scratch / "llama-5steps/notes.txt");
  save(scratch.path(), 6, 1);
  EXPECT_EQ(names_in(scratch.path()),
            (Names{"llama-1steps", "llama-2steps-old", "llama-3steps", "notes.txt", "elsewhere",
                   "llama-4steps", "llama-5steps", "llama-6steps"}));
  EXPECT_EQ(names_in(scratch / "llama-5steps"), Names{"notes.txt"});
  EXPECT_NO_THROW(CheckpointReader{scratch / "llama-4steps"});
}

TEST(Retention, DoesNotCountIncompleteOnes) {
  ScratchDirectory scratch;
  save(scratch.path(), 10);
  fs::create_directories(scratch / "llama-30steps");
  save(scratch.path(), 20, 2);
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-10steps", "llama-20steps", "llama-30steps"}));
}

const CheckpointOrigin kRun{"00112233445566778899aabbccddeeff", "0011223344556677a0a0a0a0a0a0a0a0"};
const CheckpointOrigin kOther{"ffeeddccbbaa99887766554433221100",
                              "ffeeddccbbaa9988b0b0b0b0b0b0b0b0"};

TEST(Retention, IsOfTheRunsOwn) {
  ScratchDirectory scratch;
  save(scratch.path(), 10);  // from before there were identities
  save(scratch.path(), 20, 0, "llama", "{}", kOther);
  for (int64_t step : {30, 40, 50}) save(scratch.path(), step, 2, "llama", "{}", kRun);
  EXPECT_EQ(names_in(scratch.path()),
            (Names{"llama-10steps", "llama-20steps", "llama-40steps", "llama-50steps"}));
}

// On a disk that has room for `room` checkpoints.
fs::path save_on_full_disk(const fs::path& directory, int64_t step, const Retention& retention,
                           size_t room) {
  State state(step);
  StateFiles files(state.boxes(), 0, 1);
  auto write = [&](const fs::path& to) {
    if (names_in(directory).size() > room)  // with the one that is being written
      throw UserError(cat("cannot write '", to.string(), "': ", std::strerror(ENOSPC)));
    return files.write(to);
  };
  return save_checkpoint(directory, {"llama", step, write, "{}", kRun, {}}, retention);
}

TEST(FullDisk, WhatWasToGoBehindASaveGoesAheadOfIt) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20, 30}) save(scratch.path(), step, 0, "llama", "{}", kRun);
  testing::internal::CaptureStderr();
  save_on_full_disk(scratch.path(), 40, {3}, 3);
  const std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log, cat(std::strerror(ENOSPC), "; removed 'llama-10steps' in '"));
  expect_contains(log, "to make room, and it is tried once more");
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-20steps", "llama-30steps", "llama-40steps"}));
  EXPECT_NO_THROW(CheckpointReader{scratch / "llama-40steps"});
}

// Else what the run has learned since is lost.
TEST(FullDisk, TheLastSaveOfARunTakesTheRoomOfOthers) {
  struct Case {
    size_t room;
    Names left;
  };
  for (const Case& one : {Case{3, {"llama-20steps", "llama-30steps", "llama-40steps"}},
                          Case{2, {"llama-30steps", "llama-40steps"}}}) {
    ScratchDirectory scratch;
    for (int64_t step : {10, 20, 30}) save(scratch.path(), step, 0, "llama", "{}", kRun);
    save_on_full_disk(scratch.path(), 40, {1'000'000'000, "", true}, one.room);
    EXPECT_EQ(names_in(scratch.path()), one.left);
    EXPECT_NO_THROW(CheckpointReader{scratch / "llama-40steps"});
  }
}

// The newest, the best and what was to stay anyway.
TEST(FullDisk, MakesNoRoomOfWhatStays) {
  struct Case {
    int64_t step;
    Retention retention;
    size_t room;
    Names left;
  };
  const Names all{"llama-10steps", "llama-20steps", "llama-30steps"};
  for (const Case& one : {
           Case{40, {1}, 2, all},                   // of one nothing can go
           Case{40, {4}, 3, all},                   // there are fewer
           Case{40, {0}, 3, all},                   // all stay
           Case{40, {2, "llama-40steps"}, 2, all},  // the best one goes behind the next best
           Case{30, {3}, 3, all},                   // another one of its step is there
           Case{40, {2, "llama-10steps"}, 1, {"llama-10steps", "llama-30steps"}},
           Case{40, {2}, 1, {"llama-30steps"}},  // and there is still no room
           Case{40, {5, "", true}, 1, {"llama-30steps"}},
           Case{40, {0, "", true}, 3, all},
           Case{40, {5, "llama-20steps", true}, 2, {"llama-20steps", "llama-30steps"}},
       }) {
    ScratchDirectory scratch;
    for (int64_t step : {10, 20, 30}) save(scratch.path(), step, 0, "llama", "{}", kRun);
    const std::string error =
        user_error([&] { save_on_full_disk(scratch.path(), one.step, one.retention, one.room); });
    expect_contains(error, std::strerror(ENOSPC));
    EXPECT_EQ(names_in(scratch.path()), one.left);
  }
}

TEST(SameStep, OfAnotherRunIsNotOverwritten) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 20, 0, "llama", "{}", kOther);
  expect_contains(user_error([&] { save(scratch.path(), 20, 0, "llama", "{\"new\": 1}", kRun); }),
                  cat("'", path.string(), "' belongs to another run, ", kOther.run));
  EXPECT_EQ(CheckpointReader(path).origin().run, kOther.run);
  EXPECT_EQ(names_in(scratch.path()), Names{"llama-20steps"});
}

TEST(AnotherRun, IsFoundByItsIdentity) {
  ScratchDirectory scratch;
  auto other = [&](const std::string& run) {
    return checkpoint_of_another_run(scratch.path(), run);
  };
  EXPECT_EQ(other(""), std::nullopt);
  save(scratch.path(), 10);
  save(scratch.path(), 20, 0, "llama", "{}", kRun);
  fs::create_directories(scratch / "llama-30steps");  // no checkpoint
  EXPECT_EQ(other(""), scratch / "llama-20steps");
  EXPECT_EQ(other(kRun.run), std::nullopt);
  EXPECT_EQ(other(kOther.run), scratch / "llama-20steps");
}

TEST(Newest, IsOneThatIsWanted) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20, 30}) save(scratch.path(), step);
  auto found = newest_complete_checkpoint(
      scratch.path(), [](const fs::path& path) { return path.filename() != "llama-30steps"; });
  EXPECT_EQ(found, scratch / "llama-20steps");
}

// It would never be written to: whoever opens it to read waits.
TEST(Newest, APipeInPlaceOfAFileIsIncomplete) {
  ScratchDirectory scratch;
  save(scratch.path(), 10);
  for (const char* name : {"manifest.json", "run.json", "state.safetensors"}) {
    fs::path newer = save(scratch.path(), 20);
    fs::remove(newer / name);
    ASSERT_EQ(::mkfifo((newer / name).c_str(), 0600), 0);
    Found found = find_newest(scratch.path());
    EXPECT_EQ(found.path, scratch / "llama-10steps") << name;
    expect_contains(found.warnings, name);
    fs::remove_all(newer);
  }
}

TEST(Leftovers, OfDeadProcessesAreRemovedThoseOfLivingOnesStay) {
  ScratchDirectory scratch;
  std::string dead = cat("llama-9steps.tmp-", dead_process());
  std::string own = cat("llama-9steps.tmp-", ::getpid());
  std::string living = cat("llama-9steps.tmp-", ::getppid());
  std::string foreign = cat("llama-8steps.tmp-", dead_process());
  pid_t unreaped = ::fork();
  if (unreaped == 0) ::_exit(0);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(unreaped), &ended, WEXITED | WNOWAIT);
  std::string zombie = cat("llama-9steps.tmp-", unreaped);
  for (const std::string& name : {dead, zombie, own, living, foreign}) {
    fs::create_directories(scratch / name);
    make_file(scratch / (name + "/state.safetensors.tmp-77"));
    make_file(scratch / (name + "/state-00002-of-00004.safetensors"));
    make_file(scratch / (name + "/state-00003-of-00004.safetensors.tmp-78"));
    make_file(scratch / (name + "/run.json"));
  }
  make_file(scratch / (foreign + "/mine.txt"));
  fs::create_directories(scratch / "llama-9steps.tmp-");
  fs::create_directories(scratch / "llama-9steps.tmp-x");
  save(scratch.path(), 10);
  ::waitpid(unreaped, nullptr, 0);
  EXPECT_EQ(names_in(scratch.path()),
            (Names{"llama-10steps", living, foreign, "llama-9steps.tmp-", "llama-9steps.tmp-x"}));
  EXPECT_EQ(names_in(scratch / foreign), Names{"mine.txt"});
}

TEST(SameStep, IsReplaced) {
  ScratchDirectory scratch;
  save(scratch.path(), 10, 0, "llama", "\"old\"");
  fs::path path = save(scratch.path(), 10, 0, "llama", "\"new\"");
  EXPECT_EQ(CheckpointReader(path).run_json(), "\"new\"");
  EXPECT_EQ(names_in(scratch.path()), Names{"llama-10steps"});
  save(scratch.path(), 10, 1, "llama", "\"newer\"");
  EXPECT_EQ(CheckpointReader(path).run_json(), "\"newer\"");
  EXPECT_EQ(names_in(scratch.path()), Names{"llama-10steps"});
}

TEST(SameStep, AnIncompleteOneIsReplacedToo) {
  ScratchDirectory scratch;
  fs::create_directories(scratch / "llama-10steps");
  save(scratch.path(), 10);
  EXPECT_EQ(names_in(scratch / "llama-10steps").size(), 3u);
}

TEST(SameStep, ForeignFilesInOneAreKeptAsOftenAsItIsReplaced) {
  ScratchDirectory scratch;
  for (const char* file : {"notes.txt", "notes.txt", "more.txt"}) {
    save(scratch.path(), 10);
    make_file(scratch / "llama-10steps" / file, "mine");
  }
  testing::internal::CaptureStderr();
  save(scratch.path(), 10);
  expect_contains(testing::internal::GetCapturedStderr(), "llama-10steps.replaced-2'");
  EXPECT_EQ(names_in(scratch.path()),
            (Names{"llama-10steps", "llama-10steps.replaced", "llama-10steps.replaced-1",
                   "llama-10steps.replaced-2"}));
  EXPECT_EQ(names_in(scratch / "llama-10steps.replaced"), Names{"more.txt"});
  EXPECT_EQ(names_in(scratch / "llama-10steps.replaced-1"), Names{"notes.txt"});
  EXPECT_EQ(find_newest(scratch.path()).path, scratch / "llama-10steps");
}

// A crash between the two renames of a replacement leaves the old checkpoint under a second name.
TEST(SameStep, TheOldOneIsFoundUntilTheNewOneIsThere) {
  ScratchDirectory scratch;
  save(scratch.path(), 5);
  save(scratch.path(), 10, 0, "llama", "\"old\"");
  fs::rename(scratch / "llama-10steps", scratch / "llama-10steps.replaced");
  EXPECT_EQ(find_newest(scratch.path()).path, scratch / "llama-10steps.replaced");
  EXPECT_EQ(find_newest(scratch / "llama-10steps").path, scratch / "llama-10steps.replaced");
  EXPECT_EQ(CheckpointReader(scratch / "llama-10steps.replaced").run_json(), "\"old\"");

  save(scratch.path(), 7, 2);  // it counts as one of those to keep
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-7steps", "llama-10steps.replaced"}));
  save(scratch.path(), 10, 2, "llama", "\"new\"");
  EXPECT_EQ(names_in(scratch.path()), (Names{"llama-7steps", "llama-10steps"}));
  EXPECT_EQ(CheckpointReader(scratch / "llama-10steps").run_json(), "\"new\"");
}

// A crash after both renames, before the old one was removed.
TEST(SameStep, ASupersededOneIsRemovedByTheNextSave) {
  ScratchDirectory scratch;
  fs::path old = save(scratch.path(), 10, 0, "llama", "\"old\"");
  fs::rename(old, scratch / "llama-10steps.replaced");
  save(scratch / "new", 10, 0, "llama", "\"new\"");
  fs::rename(scratch / "new/llama-10steps", old);
  fs::remove(scratch / "new");
  EXPECT_EQ(find_newest(scratch.path()).path, old);
  for (int64_t step : {11, 10}) {
    fs::copy(old, scratch / "llama-10steps.replaced", fs::copy_options::overwrite_existing);
    save(scratch.path(), step);
    EXPECT_EQ(names_in(scratch.path()), (Names{"llama-10steps", "llama-11steps"}));
  }
}

TEST(Directory, NamesItCannotHaveAreABug) {
  EXPECT_THROW(checkpoint_name("", 1), InternalError);
  EXPECT_THROW(checkpoint_name("a/b", 1), InternalError);
  EXPECT_THROW(checkpoint_name("llama", -1), InternalError);
  EXPECT_EQ(checkpoint_name("llama_v2", 0), "llama_v2-0steps");
}

}  // namespace
}  // namespace tessera
