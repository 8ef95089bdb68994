#include "observe/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

class MetricsFileTest : public testing::Test {
 protected:
  ScratchDirectory scratch_;
  std::filesystem::path path_ = scratch_ / "metrics";
};

TEST_F(MetricsFileTest, HalfARecordOfACrashIsCutOff) {
  MetricsFile(path_.string()).step(sample_report());
  const std::string line = read_file(path_);
  write_file_atomic(path_, line + line.substr(0, line.size() - 20));
  testing::internal::CaptureStderr();
  MetricsFile(path_.string()).step(sample_report());
  expect_contains(testing::internal::GetCapturedStderr(), "ended with half a record");
  const std::string text = read_file(path_);
  EXPECT_EQ(text.size(), 2 * line.size());  // but for the time the same
  EXPECT_EQ(text.find('\n'), line.size() - 1);
}

TEST_F(MetricsFileTest, TheNextRecordHasALineOfItsOwn) {
  MetricsFile(path_.string()).step(sample_report());
  const std::string line = read_file(path_);
  const std::string begin = line.substr(0, line.size() - 1);
  for (const std::string& before :
       {begin, line + std::string(100, '\0'), line + begin + std::string(3 << 20, '\0'),
        line + line.substr(0, 30) + std::string(7, '\0'), line + "{\"ti", line + "a note",
        line.substr(0, 30), std::string("{\"batch\":3}")}) {
    write_file_atomic(path_, before);
    testing::internal::CaptureStderr();
    MetricsFile(path_.string()).step(sample_report());
    testing::internal::GetCapturedStderr();
    const std::string text = read_file(path_);
    EXPECT_EQ(text.find('\0'), std::string::npos);
    ASSERT_GE(text.size(), line.size());
    const size_t added = text.size() - line.size();
    EXPECT_TRUE(added == 0 || text[added - 1] == '\n') << text;
    EXPECT_TRUE(text.substr(added).starts_with("{\"time\":\"")) << text;
    if (before == begin) {
      EXPECT_EQ(added, line.size()) << "a whole record stays";
    }
    if (before.ends_with("note")) {
      EXPECT_EQ(text.substr(0, added), line + "a note\n");
    }
  }
}

TEST_F(MetricsFileTest, WhatSomebodyElseWroteIsAnErrorAndStays) {
  for (const std::string other :
       {"notes", "{\"lr\": 0.1}", "{\"time\":\"now\"}", "{", "\n", "[1]\n{\"time\":\""}) {
    write_file_atomic(path_, other);
    expect_contains(user_error([&] { MetricsFile metrics(path_); }),
                    cat("cannot write metrics to '", path_.string(), "', which begins with"));
    EXPECT_EQ(read_file(path_), other);
  }
}

TEST_F(MetricsFileTest, OneJsonObjectALineAppended) {
  {
    MetricsFile metrics(path_.string());
    metrics.step(sample_report());
  }
  {
    MetricsFile metrics(path_.string());
    StepReport bad = sample_report();
    bad.loss = std::nan("");
    bad.gradient_norm = std::numeric_limits<double>::infinity();
    bad.ok = false;
    metrics.step(bad);
    metrics.validation({12, 2, 26624, 2.5, std::exp(2.5)});
  }
  std::string text = read_file(path_);
  std::vector<std::string_view> lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 4u);  // the last is empty
  auto good = nlohmann::json::parse(lines[0]), bad = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(good["batch"], 12);
  EXPECT_EQ(good["loss"].get<double>(), 8.123456);
  EXPECT_EQ(good["ok"], true);
  EXPECT_EQ(good["tokens"], 2048);
  EXPECT_EQ(good["learning_rate"].get<double>(), 2e-4);  // that of this step, not of the next
  EXPECT_EQ(good["epoch"], 2);
  EXPECT_EQ(good["tokens_seen"], 26624);
  EXPECT_TRUE(bad["loss"].is_null());
  EXPECT_TRUE(bad["gradient_norm"].is_null());
  EXPECT_EQ(bad["ok"], false);
  auto validation = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(validation["validation_perplexity"].get<double>(), std::exp(2.5));
  EXPECT_EQ(validation["epoch"], 2);
  EXPECT_EQ(validation["tokens_seen"], 26624);
}

TEST_F(MetricsFileTest, EveryLineSaysWhenItWasWritten) {
  {
    MetricsFile metrics(path_.string());
    metrics.step(sample_report());
    metrics.validation({});
  }
  const std::string text = read_file(path_);
  for (std::string_view line : split(trim(text), '\n')) {
    auto time = nlohmann::json::parse(line).at("time").get<std::string>();
    ASSERT_EQ(time.size(), std::string_view("2026-01-31T12:00:00.123Z").size()) << time;
    for (auto [place, mark] :
         {std::pair{4, '-'}, {7, '-'}, {10, 'T'}, {13, ':'}, {19, '.'}, {23, 'Z'}})
      EXPECT_EQ(time[static_cast<size_t>(place)], mark) << time;
  }
}

TEST_F(MetricsFileTest, HasTheHashOfTheDataWhereThereIsOne) {
  StepReport r = sample_report();
  MetricsFile metrics(path_.string());
  metrics.step(r);
  r.data_hash = 0x1f;
  metrics.step(r);
  const std::string text = read_file(path_);
  const std::vector<std::string_view> lines = split(text, '\n');
  EXPECT_FALSE(nlohmann::json::parse(lines.at(0)).contains("data_hash"));
  EXPECT_EQ(nlohmann::json::parse(lines.at(1)).at("data_hash"), "000000000000001f");
}

TEST_F(MetricsFileTest, HasTheSlowestRank) {
  MetricsFile(path_.string()).stragglers({99, 100, 5, "b", "data", 1.5, 0.5, true});
  const auto line = nlohmann::json::parse(read_file(path_));
  EXPECT_EQ(line.at("batch"), 99);
  EXPECT_EQ(line.at("slowest_rank"), 5);
  EXPECT_EQ(line.at("slowest_host"), "b");
  EXPECT_EQ(line.at("slowest_phase"), "data");
  EXPECT_EQ(line.at("slowest_seconds"), 1.5);
  EXPECT_EQ(line.at("others_seconds"), 0.5);
  EXPECT_EQ(line.at("straggler"), true);
}

// Behind a step: before one there is nothing that it would belong to.
TEST_F(MetricsFileTest, HasWhyTheRunFailed) {
  const EndReport failed{.failed = true, .failure = "stopped: \"1\"\n\xff"};
  MetricsFile metrics(path_.string());
  metrics.end(failed);
  EXPECT_EQ(read_file(path_), "");
  metrics.step(sample_report());
  metrics.end({});
  metrics.end(failed);
  const std::string text = read_file(path_);
  const std::vector<std::string_view> lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 3u);
  const auto line = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(line.at("batch"), sample_report().batch);
  EXPECT_EQ(line.at("failure"), "stopped: \"1\"\n\uFFFD");
}

TEST_F(MetricsFileTest, AFileThatCannotBeOpenedIsAnError) {
  expect_contains(user_error([] { MetricsFile metrics("/proc/none/metrics"); }),
                  "/proc/none/metrics");
}

TEST_F(MetricsFileTest, AFullDiskIsSaidOnce) {
  MetricsFile metrics("/dev/full");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) metrics.step(sample_report());
  std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log, "cannot write metrics to '/dev/full': No space left on device");
  EXPECT_EQ(log.find("cannot"), log.rfind("cannot")) << log;
}

}  // namespace
}  // namespace tessera
