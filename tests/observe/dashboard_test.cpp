#include "observe/dashboard.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "observe/dashboard_page.h"
#include "tests/base/error_expectation.h"
#include "tests/observe/sample_reports.h"
#include "tests/serve/http_get.h"

namespace tessera {
namespace {

class DashboardTest : public testing::Test {
 protected:
  DashboardTest() : dashboard_({}, "<script>", {{"a \"fact\"", "back\\slash\xff"}}) {
    const std::string url = dashboard_.url();
    const size_t slash = url.find('/', 8);
    path_ = url.substr(slash);
    expect_contains(url, cat("http://127.0.0.1:", dashboard_.port(), "/"));
  }
  std::string get(const std::string& path) { return http_answer(dashboard_.port(), path); }
  nlohmann::json state(int64_t stride = 0, size_t count = 0) {
    const std::string answer = get(cat(path_, "state/", stride, "/", count));
    expect_contains(answer, "Content-Type: application/json");
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n")));
  }
  void add_step(int64_t batch, double loss) {
    StepReport report = sample_report();
    report.batch = batch;
    report.loss = loss;
    dashboard_.step(report);
  }

  Dashboard dashboard_;
  std::string path_;  // "/TOKEN/"
};

TEST_F(DashboardTest, ShowsNothingWithoutTheToken) {
  EXPECT_EQ(path_.size(), 34u) << "128 bits";
  std::string other = path_;
  other[5] = other[5] == '0' ? '1' : '0';
  for (const std::string& path :
       {std::string("/"), std::string("/state/0/0"), std::string("//state/0/0"), other,
        cat(other, "state/0/0"), path_.substr(0, 20), cat("/x", path_), std::string("/favicon.ico"),
        cat("/?token=", path_)}) {
    const std::string answer = get(path);
    EXPECT_EQ(answer.substr(9, 3), "403") << path;
    EXPECT_EQ(answer.find(path_.substr(1, 32)), std::string::npos);
  }
  EXPECT_EQ(get(path_).substr(9, 3), "200");
  EXPECT_EQ(get(path_.substr(0, 33)).substr(9, 3), "200") << "without the last slash";
  for (const char* rest : {"state", "state/0", "state/x/0", "state/0/-1", "state/0/0/0",
                           "state/0/99999999999999999999", "other"})
    EXPECT_EQ(get(path_ + rest).substr(9, 3), "404") << rest;
}

TEST_F(DashboardTest, ThePageAsksNobodyElse) {
  const std::string answer = get(path_);
  expect_contains(answer, "Content-Type: text/html");
  expect_contains(answer, "default-src 'none'");
  std::string page = dashboard_page();
  page.erase(page.find("http://www.w3.org/2000/svg"), 26);  // a name, not an address
  for (const char* outside : {"http:", "https:", "//cdn", "src=", "@import", "url("}) {
    if (outside == std::string_view("url(")) {
      page.erase(page.find("url(#${id})"), 4);
    }
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

TEST_F(DashboardTest, SaysWhatTheRunSaid) {
  dashboard_.steps(0, 100);
  dashboard_.planned_memory({{"parameters", 1 << 20}, {"arena", 3}});
  dashboard_.doing("training");
  add_step(0, 8.5);
  add_step(1, std::numeric_limits<double>::quiet_NaN());
  dashboard_.validation({1, 1, 100, 7.25, 1408});
  RankState rank;
  rank.host = "a\"<b>\n";
  rank.last = sample_report();
  dashboard_.ranks({to_json(rank), "no json", "3"});
  const nlohmann::json all = state();
  EXPECT_EQ(all["title"], "<script>");
  EXPECT_EQ(all["facts"][0][0], "a \"fact\"");
  EXPECT_EQ(all["facts"][0][1], "back\\slash\xef\xbf\xbd") << "no UTF-8 is replaced";
  EXPECT_EQ(all["step"], 2);
  EXPECT_EQ(all["steps"], 100);
  EXPECT_EQ(all["doing"], "training");
  EXPECT_TRUE(all["end"].is_null());
  EXPECT_TRUE(all["last"]["loss"].is_null()) << "JSON has no NaN";
  EXPECT_EQ(all["last"]["tokens_per_second"], 819.2);
  EXPECT_EQ(all["validation_loss"], 7.25);
  EXPECT_EQ(all["memory"][0][0], "parameters");
  EXPECT_EQ(all["memory"][0][1], 1 << 20);
  ASSERT_EQ(all["ranks"].size(), 1u) << "what is no object is left out";
  EXPECT_EQ(all["ranks"][0]["host"], "a\"<b>\n");
  EXPECT_EQ(all["ranks"][0]["step"], 13);
  ASSERT_EQ(all["points"].size(), 2u);
  EXPECT_EQ(all["points"][0], nlohmann::json::parse("[1,8.5,8.5,8.5,0.0002,0.0002,0.0002,"
                                                    "1.23456,1.23456,1.23456,819.2,819.2,819.2]"));
  EXPECT_TRUE(all["points"][1][1].is_null());
  EXPECT_EQ(all["validations"][0][0], 2);
  dashboard_.end({.failed = true});
  EXPECT_EQ(state()["end"], "failed");
}

// A page that has some points gets those that are new, and the last that it has.
TEST_F(DashboardTest, GivesWhatIsNewInBoundedMemory) {
  for (int i = 0; i < 100; ++i) add_step(i, i);
  nlohmann::json some = state(1, 100);
  EXPECT_EQ(some["first"], 99);
  EXPECT_EQ(some["points"].size(), 1u);
  some = state(1, 90);
  EXPECT_EQ(some["first"], 89);
  EXPECT_EQ(some["points"].size(), 11u);
  EXPECT_EQ(state(1, 101)["first"], 0) << "of another run";
  EXPECT_EQ(state(2, 50)["first"], 0) << "of other steps a point";
  size_t largest = 0;
  for (int i = 100; i < 20'000; ++i) add_step(i, 1.0 / 3 + i);
  for (int i = 0; i < 3000; ++i) dashboard_.validation({i, 1, 100, 1.0 / 7 + i, 1});
  for (int i = 0; i < 3000; ++i)
    dashboard_.event(LogLevel::kWarning, std::string(100'000, 'x') + cat(i));
  const nlohmann::json all = state();
  EXPECT_EQ(all["stride"], 32);
  EXPECT_EQ(all["points"].size(), 625u);
  EXPECT_LE(all["validations"].size(), 1024u);
  EXPECT_EQ(all["events"].size(), 60u);
  largest = all.dump().size();
  EXPECT_LT(largest, 400'000u);
}

TEST_F(DashboardTest, ARewindTakesBackWhatItUndoes) {
  for (int i = 0; i < 100; ++i) add_step(i, i);
  for (int i = 9; i < 100; i += 10) dashboard_.validation({i, 1, 100, 7, 1});
  dashboard_.rewound(50);
  EXPECT_EQ(state()["points"].size(), 50u);
  EXPECT_EQ(state()["validations"].size(), 5u);
  for (int i = 50; i < 120; ++i) add_step(i, -i);
  const nlohmann::json all = state(1, 100);
  EXPECT_EQ(all["first"], 0) << "the page has points that are undone";
  ASSERT_EQ(all["points"].size(), 120u);
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(all["points"][i][0], i + 1);
  EXPECT_EQ(all["points"][60][1], -60);
  EXPECT_EQ(state(all["curve"], 120)["first"], 119);
}

TEST_F(DashboardTest, HearsTheLogButForProgress) {
  testing::internal::CaptureStderr();
  TESSERA_INFO("Batch 3 Loss: 4.00000, Speed: 1.00 samples/sec");
  TESSERA_INFO("Batch 3 Validation loss: 4");
  TESSERA_INFO("Saved checkpoint a");
  TESSERA_WARN("a \"disk\" is full");
  testing::internal::GetCapturedStderr();
  const nlohmann::json all = state();
  ASSERT_EQ(all["events"].size(), 2u) << all["events"];
  EXPECT_EQ(all["events"][0][2], "Saved checkpoint a");
  EXPECT_EQ(all["events"][1][1], static_cast<int>(LogLevel::kWarning));
  EXPECT_EQ(all["events"][1][2], "a \"disk\" is full");
}

TEST_F(DashboardTest, IsFoundAndHearsTheLogAtAnyLevel) {
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::kError);
  Dashboard second({}, "gpt2", {});
  TESSERA_INFO("Saved checkpoint a");
  TESSERA_WARN("a disk is full");
  set_log_level(LogLevel::kInfo);
  const std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log, second.url());
  EXPECT_EQ(log.find("checkpoint"), std::string::npos);
  EXPECT_EQ(log.find("disk"), std::string::npos);
  const std::string page = second.url().substr(second.url().find('/', 8));
  const std::string answer = http_answer(second.port(), page + "state/0/0");
  expect_contains(answer, "Saved checkpoint a");
  expect_contains(answer, "a disk is full");
}

TEST_F(DashboardTest, ATakenPortIsAWarning) {
  testing::internal::CaptureStderr();
  Dashboard second({.port = dashboard_.port()}, "gpt2", {});
  second.step(sample_report());
  second.end({});
  EXPECT_EQ(second.url(), "");
  expect_contains(testing::internal::GetCapturedStderr(),
                  "Address already in use; the run goes on without");
}

}  // namespace
}  // namespace tessera
