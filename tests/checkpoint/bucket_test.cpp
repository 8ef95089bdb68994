// Checkpoints in a bucket, on a server that checks signatures and fails now and then.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/process_identity.h"
#include "checkpoint/bucket_lock.h"
#include "checkpoint/directory.h"
#include "checkpoint/directory_lock.h"
#include "checkpoint/places.h"
#include "checkpoint/pruning.h"
#include "checkpoint/verification.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class Bucket : public testing::Test {
 protected:
  Bucket() {
    RemoteOptions options = server_.options();
    options.s3.access_key = "AKIDEXAMPLE";
    options.s3.secret_key = "secret/key+example";
    options.s3.part_bytes = 50'000;
    options.http.attempts = 8;
    bucket_store() = S3Store(options);
  }
  // Names directly in it.
  static Names names(const fs::path& directory) {
    Names names;
    for (const BucketFile& file : files_below(directory))
      names.insert(file.name.substr(0, file.name.find('/')));
    return names;
  }
  static int64_t step_in(const fs::path& checkpoint) {
    State state(-1);
    CheckpointReader reader(checkpoint);
    auto targets = state.targets();
    reader.verify(targets);
    reader.load_all(targets);
    EXPECT_EQ(state.weight, State(state.counter).weight);
    return state.counter;
  }
  void settings(const std::string& json) const { server_.write("s3.json", json); }

  const fs::path directory_ = "s3://bucket/runs/a b";
  LocalServer server_;
};

TEST_F(Bucket, PathsStayAddresses) {
  EXPECT_TRUE(is_in_bucket(directory_));
  EXPECT_EQ((directory_ / "x").string(), "s3://bucket/runs/a b/x");
  EXPECT_EQ((directory_ / "x").parent_path(), directory_);
  EXPECT_EQ((directory_ / "x").filename(), "x");
  EXPECT_FALSE(is_in_bucket("a/s3://b"));
}

TEST_F(Bucket, SavesFindsAndKeepsTheNewest) {
  EXPECT_FALSE(newest_complete_checkpoint(directory_));
  for (int64_t step : {1, 2, 10, 3}) {
    EXPECT_EQ(save(directory_, step, 2), directory_ / cat("llama-", step, "steps"));
    EXPECT_EQ(step_in(directory_ / cat("llama-", step, "steps")), step);
  }
  EXPECT_EQ(names(directory_), (Names{"llama-10steps", "llama-3steps"}));
  save(directory_, 1, 2);  // which stays in any case
  EXPECT_EQ(newest_complete_checkpoint(directory_), directory_ / "llama-10steps");
  EXPECT_EQ(newest_complete_checkpoint(directory_ / ""), directory_ / "llama-10steps");
  EXPECT_EQ(newest_complete_checkpoint(directory_ / "llama-1steps"), directory_ / "llama-1steps");
  EXPECT_EQ(list_checkpoints(directory_).size(), 3u);
  EXPECT_FALSE(incomplete_reason(directory_ / "llama-3steps"));
  // What is local is found beside it.
  ScratchDirectory scratch;
  save(scratch.path(), 5);
  const std::vector<std::string> places{scratch.path().string(), directory_.string()};
  EXPECT_EQ(newest_of_all(places), directory_ / "llama-10steps");
}

TEST_F(Bucket, OneOfTheSameStepIsReplacedWithoutAGap) {
  save(directory_, 1, 1, "llama", R"({"a":1})");
  for (int round = 0; round < 3; ++round) {
    const std::string run = cat("{\"a\":", round + 2, "}");
    const fs::path saved = save(directory_, 1, 1, "llama", run);
    EXPECT_EQ(saved.filename(), round % 2 == 0 ? "llama-1steps.replaced" : "llama-1steps");
    EXPECT_EQ(newest_complete_checkpoint(directory_), saved);
    EXPECT_EQ(CheckpointReader(saved).run_json(), run);
    EXPECT_EQ(names(directory_), Names{saved.filename().string()});
  }
  // What fails leaves the one before.
  const auto before = newest_complete_checkpoint(directory_);
  settings(R"({"full": 100})");
  EXPECT_NE(user_error([&] { save(directory_, 1, 1); }), "");
  EXPECT_NE(user_error([&] { save(directory_, 2, 1); }), "");
  settings("{}");
  EXPECT_EQ(newest_complete_checkpoint(directory_), before);
  EXPECT_EQ(step_in(*before), 1);
  EXPECT_EQ(names(directory_), Names{before->filename().string()});
}

TEST_F(Bucket, ManyPartsAndABadDay) {
  settings(R"({"trouble": 5})");
  std::vector<int64_t> content(70'001);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<int64_t>(i * i);
  const Shape shape{std::ssize(content)};
  std::vector<StateBox> boxes = {
      {"state", TensorRole::kOther, DType::kI64, shape, {{0}, shape}, content.data()}};
  std::vector<AttachedFile> attached = {{"a", "attached"}, {"b c", std::string(10'000, 'b')}};
  const fs::path saved = save_boxes(directory_, "llama", 7, boxes, "{}", {}, {}, attached);
  EXPECT_GT(server_.requests("partNumber=").size(), 11u);
  std::vector<int64_t> loaded(content.size());
  std::vector<StateTarget> targets = {
      {"state", DType::kI64, shape, {{0}, shape}, into(loaded.data())}};
  CheckpointReader reader(saved);
  reader.verify(targets);
  reader.load_all(targets);
  EXPECT_EQ(loaded, content);
  CheckpointVerification verified = verify_checkpoint(saved, 2);
  EXPECT_TRUE(verified.damages.empty());
  EXPECT_TRUE(verified.foreign.empty());
  EXPECT_EQ(verified.files, 4);

  // A part of a tensor is read by ranges.
  const int64_t before = reader.bytes_read();
  std::vector<int64_t> part(10);
  reader.load_some(
      std::vector<StateTarget>{{"state", DType::kI64, shape, {{60'000}, {10}}, into(part.data())}});
  EXPECT_EQ(part[3], content[60'003]);
  EXPECT_EQ(reader.bytes_read() - before, 80);
}

TEST_F(Bucket, DamageIsNoticed) {
  save(directory_, 1);
  save(directory_, 2);
  const std::string state = (directory_ / "llama-2steps/state.safetensors").string();
  std::string content = read_content(state);
  content.back() ^= 1;
  write_content(state, content);
  bucket_store().write((directory_ / "llama-2steps/mine").string(), "mine");
  EXPECT_THROW(step_in(directory_ / "llama-2steps"), DamagedCheckpoint);
  CheckpointVerification verified = verify_checkpoint(directory_ / "llama-2steps");
  ASSERT_EQ(verified.damages.size(), 1u);
  EXPECT_EQ(verified.damages[0].tensor, "layers.0.w");
  EXPECT_EQ(verified.foreign, std::vector<std::string>{"mine"});
  write_content(state, "short");
  expect_contains(*incomplete_reason(directory_ / "llama-2steps"), "has 5 bytes instead of");
  bucket_store().remove(state);
  expect_contains(*incomplete_reason(directory_ / "llama-2steps"), "cannot read");
  EXPECT_EQ(newest_complete_checkpoint(directory_), directory_ / "llama-1steps");
  verified = verify_checkpoint(directory_ / "llama-2steps");
  ASSERT_EQ(verified.damages.size(), 1u);
  expect_contains(verified.damages[0].what, "is missing");
  remove_checkpoint(directory_ / "llama-2steps");
  EXPECT_EQ(files_below(directory_ / "llama-2steps").size(), 1u);  // what tessera did not write
}

TEST_F(Bucket, PruningChooses) {
  for (int64_t step : {1, 2, 3}) save(directory_, step);
  bucket_store().remove((directory_ / "llama-3steps/run.json").string());
  std::vector<PruningChoice> choices = choose_for_pruning(directory_, {.keep = 1});
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_FALSE(choices[0].goes);  // not complete
  EXPECT_FALSE(choices[1].goes);
  EXPECT_TRUE(choices[2].goes);
}

TEST_F(Bucket, TheLockIsForOneAndRemovesLeftovers) {
  const BucketLock::Timing timing{milliseconds(100), milliseconds(60'000)};
  const std::string job = random_id();
  save(directory_, 1);
  save(directory_, 2);
  bucket_store().remove((directory_ / "llama-2steps/manifest.json").string());
  auto left = std::make_unique<S3Upload>(
      bucket_store(), (directory_ / "llama-3steps/state.safetensors").string(), 100'000);
  left->write(std::string(100'000, 'x').data(), 100'000);
  {
    BucketLock lock(directory_, {job, 0}, timing);
    EXPECT_EQ(names(directory_), (Names{"llama-1steps", "run.lock"}));
    EXPECT_NE(user_error([&] { left->commit(); }), "");
    EXPECT_EQ(lock_token(directory_), lock.token());
    expect_contains(find_lock(directory_)->holder, cat("(job ", job, ")"));
    EXPECT_THROW(BucketLock(directory_, {random_id(), 0}, timing), DirectoryInUse);
    lock.require_held();
    // A later attempt of the same job does not wait; the earlier one notices.
    BucketLock next(directory_, {job, 1}, timing);
    next.require_held();
    expect_contains(user_error([&] { lock.require_held(); }), "was taken over by process");
  }
  EXPECT_EQ(names(directory_), Names{"llama-1steps"});
}

TEST_F(Bucket, TheLockLeavesUploadsOfOthers) {
  const std::string content(100'000, 'x');
  std::vector<std::unique_ptr<S3Upload>> uploads;
  for (const char* name : {"llama-3steps/state.safetensors", "llama-3steps/x", "prepared/shard.bin",
                           "other run/llama-3steps/state.safetensors", "llama-4steps.tar"}) {
    uploads.push_back(
        std::make_unique<S3Upload>(bucket_store(), (directory_ / name).string(), content.size()));
    uploads.back()->write(content.data(), content.size());
  }
  BucketLock lock(directory_, {random_id(), 0}, {milliseconds(100), milliseconds(60'000)});
  for (size_t i = 0; i < 2; ++i) EXPECT_THROW(uploads[i]->commit(), UserError) << i;
  for (size_t i = 2; i < uploads.size(); ++i) EXPECT_NO_THROW(uploads[i]->commit()) << i;
}

TEST_F(Bucket, ADeadHoldersLockIsTakenOver) {
  const BucketLock::Timing timing{milliseconds(100), milliseconds(500)};
  auto content = [&] {
    BucketLock dead(directory_, {random_id(), 0}, timing);
    return read_content(directory_ / kLockName);
  }();
  for (bool blind : {false, true}) {
    settings(blind ? R"({"blind": true})" : "{}");
    bucket_store().write((directory_ / kLockName).string(), content);
    BucketLock lock(directory_, {random_id(), 0}, timing);
    lock.require_held();
    // It is made again where somebody removed it.
    bucket_store().remove((directory_ / kLockName).string());
    lock.require_held();
    EXPECT_EQ(lock_token(directory_), lock.token());
  }
}

TEST_F(Bucket, ALostAnswerDoesNotLoseTheLock) {
  const BucketLock::Timing timing{milliseconds(100'000), milliseconds(300)};
  auto content = [&] {
    BucketLock dead(directory_, {random_id(), 0}, timing);
    return read_content(directory_ / kLockName);
  }();
  bucket_store().write((directory_ / kLockName).string(), content);
  settings(R"({"lost": "If-Match"})");  // as it is taken over
  BucketLock lock(directory_, {random_id(), 0}, timing);
  EXPECT_EQ(lock_token(directory_), lock.token());
  settings(R"({"lost": "If-None-Match"})");  // as it is made again
  bucket_store().remove((directory_ / kLockName).string());
  lock.require_held();
  EXPECT_EQ(lock_token(directory_), lock.token());
  EXPECT_EQ(server_.requests("status=drop").size(), 2u);
}

TEST_F(Bucket, OfManyAtOnceOneHasTheLock) {
  const BucketLock::Timing timing{milliseconds(50), milliseconds(60'000)};
  std::atomic<int> have = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      try {
        BucketLock lock(directory_, {random_id(), 0}, timing);
        EXPECT_EQ(have.fetch_add(1), 0);
        while (refused < 5) std::this_thread::sleep_for(milliseconds(5));
      } catch (const DirectoryInUse&) {
        ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(have, 1);
}

}  // namespace
}  // namespace tessera
