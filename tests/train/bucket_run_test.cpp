// Runs whose checkpoints are in a bucket, on a server that fails now and then.
#include <gtest/gtest.h>

#include "checkpoint/places.h"
#include "tests/remote/local_server.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class BucketRun : public TrainingTest {
 protected:
  BucketRun() {
    RemoteOptions options = server_.options();
    options.s3.access_key = "AKIDEXAMPLE";
    options.s3.secret_key = "secret/key+example";
    options.s3.part_bytes = 100'000;
    options.http.attempts = 8;
    bucket_store() = S3Store(options);
    server_.write("s3.json", R"({"trouble": 7})");
  }
  static Names in_bucket(const std::string& directory = "s3://bucket/run") {
    Names names;
    for (const BucketFile& file : files_below(directory))
      names.insert(file.name.substr(0, file.name.find('/')));
    return names;
  }
  LocalServer server_;
};

TEST_F(BucketRun, SavesAndGoesOn) {
  const RunTrace straight = train(options(8));
  fs::remove_all(path("ckpt"));
  RunConfig config = options(5);
  config.checkpoint_dir = {path("ckpt"), "s3://bucket/run"};
  config.checkpoint_freq = {"1", "2"};
  config.num_kept_checkpoints = {"1", "2"};
  RunTrace first = train(config);
  EXPECT_EQ(lines_with(first.log, "Checkpoint failed").size(), 0u) << first.log;
  EXPECT_EQ(in_bucket(), (Names{"llama_v2-4steps", "llama_v2-5steps"}));
  EXPECT_GT(server_.requests("partNumber=").size(), 8u);
  fs::remove_all(path("ckpt"));
  config = options(8);
  config.checkpoint_dir = config.resume_from_checkpoint = {"s3://bucket/run"};
  RunTrace again = train(config);
  expect_contains(again.log, "Checkpoint loaded from s3://bucket/run/llama_v2-5steps.");
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
  EXPECT_EQ(in_bucket(), (Names{"llama_v2-4steps", "llama_v2-5steps", "llama_v2-8steps"}));
  // No upload is left open.
  EXPECT_EQ(server_.requests("POST ").empty(), false);
  bucket_store().abort_uploads("s3://bucket/");
  EXPECT_TRUE(server_.requests("DELETE /s3/bucket/run/llama_v2-8steps").empty());
}

TEST_F(BucketRun, AServerThatTakesNothingMoreIsAWarning) {
  RunConfig config = options(6);
  config.checkpoint_dir = {path("ckpt"), "s3://bucket/run"};
  config.checkpoint_freq = {"2", "2"};
  train(config);
  const Names before = in_bucket();
  server_.write("s3.json", R"({"full": 1000})");
  config = options(8);
  config.checkpoint_dir = config.resume_from_checkpoint = {path("ckpt"), "s3://bucket/run"};
  config.checkpoint_freq = {"2", "2"};
  RunTrace again = train(config);
  EXPECT_EQ(again.end, RunEnd::kFinished);
  const auto failures = lines_with(again.log, "Checkpoint failed: ");
  ASSERT_EQ(failures.size(), 1u);
  expect_contains(failures[0], "QuotaExceeded");
  EXPECT_EQ(in_bucket(), before);
}

TEST_F(BucketRun, AnInterruptedRunSavesThere) {
  RunConfig config = options(100'000);
  config.checkpoint_dir = {"s3://bucket/run"};
  config.checkpoint_freq = {"100000"};
  std::thread asks([&] {
    while (!fs::exists(path("metrics")) || fs::file_size(path("metrics")) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    request_interruption();
  });
  RunTrace run = train(config);
  asks.join();
  EXPECT_EQ(run.end, RunEnd::kInterrupted);
  clear_interruption();
  EXPECT_EQ(in_bucket(), Names{cat("llama_v2-", run.steps, "steps")});
}

TEST_F(BucketRun, WhatCannotBeWrittenIsSaidAtTheStart) {
  RemoteOptions wrong = bucket_store().options();
  wrong.s3.secret_key = "wrong";
  bucket_store() = S3Store(wrong);
  RunConfig config = options(2);
  config.checkpoint_dir = {"s3://bucket/run"};
  const std::string message = failure(config);
  expect_contains(message, "--checkpoint_dir: cannot write '");
  expect_contains(message, "SignatureDoesNotMatch");
  EXPECT_TRUE(failed().losses.empty());
}

}  // namespace
}  // namespace tessera
