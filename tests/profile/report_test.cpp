// Tables, merged traces and differences of traces whose times are known.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profile/exchange_arrivals.h"
#include "profile/profile_page.h"
#include "profile/profile_report.h"
#include "profile/trace_merge.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// A step of 100 us: 10 of data, computing until `arrives`, the exchange until 70, then 20 of
// computing; 10 are between. `ahead`: microseconds by which the rank's clock is ahead.
Json trace_of(int rank, double arrives, double ahead = 0, int64_t world = 2) {
  auto slice = [&](const char* category, int lane, double begin, double end, Json arguments) {
    return Json{{"ph", "X"},          {"pid", rank},      {"tid", lane},
                {"name", "x"},        {"cat", category},  {"ts", 1000 + begin + ahead},
                {"dur", end - begin}, {"args", arguments}};
  };
  const Json forward{{"op", "linear"}, {"phase", "forward"}, {"scope", "layers.7.mlp"},
                     {"layer", 7},     {"flops", 1e6},       {"bytes", 2e6},
                     {"light_us", 5}};
  Json backward = forward,
       exchange{{"op", "all_reduce"}, {"phase", "backward"}, {"scope", "layers.7"},
                {"layer", 7},         {"axes", "{data}"},    {"ranks", "0-1"},
                {"sequence", 0},      {"bytes_sent", 4096}};
  backward["phase"] = "backward";
  backward["light_us"] = 20;
  Json events{
      slice("user_annotation", 1, 0, 100, {{"step", 3}}), slice("data", 1, 0, 10, Json::object()),
      slice("cpu_op", 1, 10, arrives, forward),           slice("wait", 1, arrives, 70, exchange),
      slice("exchange", 3, arrives, 70, exchange),        slice("cpu_op", 1, 70, 90, backward)};
  return {{"tessera",
           {{"version", 1},
            {"ranks",
             {{{"rank", rank},
               {"world_size", world},
               {"host", "h"},
               {"first_step", 3},
               {"lost", 0},
               {"state", Json::array()},
               {"peaks", Json::array()},
               {"clock",
                {{{"at_us", 0}, {"offset_us", ahead}, {"error_us", ahead == 0 ? 0 : 1.5}}}}}}}}},
          {"traceEvents", events}};
}

class Traces : public testing::Test {
 protected:
  std::string write(int rank, const Json& trace, const std::string& folder = "t") {
    std::filesystem::create_directories(directory_ / folder);
    directory_.write(std::filesystem::path(folder) / cat("rank", rank, ".3.pt.trace.json"),
                     trace.dump());
    return (directory_ / folder).string();
  }
  static ProfileReport report(const std::string& path) {
    return profile_report(read_traces(std::span(&path, 1)));
  }
  ScratchDirectory directory_;
};

const ProfileRow& row(const std::vector<ProfileRow>& rows, const std::string& name,
                      const std::string& phase = "") {
  for (const ProfileRow& r : rows)
    if (r.name == name && (phase.empty() || r.phase == phase)) return r;
  ADD_FAILURE() << "no row " << name;
  return rows[0];
}

TEST_F(Traces, SayWhereTheTimeWentAndWhoWaitedForWhom) {
  write(0, trace_of(0, 30));
  const std::string both = write(1, trace_of(1, 60, 250'000));
  const ProfileReport r = report(both);
  EXPECT_NEAR(r.step_seconds, 100e-6, 1e-12);
  EXPECT_EQ(r.ranks, 2);
  EXPECT_NEAR(r.clock_error, 1.5e-6, 1e-12);
  EXPECT_NEAR(row(r.by_phase, "forward").seconds, 35e-6, 1e-9) << "20 and 50";
  EXPECT_NEAR(row(r.by_phase, "backward").seconds, 20e-6, 1e-9);
  EXPECT_NEAR(row(r.by_phase, "waiting").seconds, 25e-6, 1e-9) << "40 and 10";
  EXPECT_NEAR(row(r.by_phase, "data").seconds, 10e-6, 1e-9);
  EXPECT_NEAR(row(r.by_phase, "other").seconds, 10e-6, 1e-9);
  EXPECT_NEAR(row(r.by_op, "linear", "forward").light, 10.0 / 70, 1e-6);
  EXPECT_NEAR(row(r.by_op, "linear", "backward").light, 1, 1e-6);
  EXPECT_NEAR(row(r.by_layer, "7").seconds, 80e-6, 1e-9);
  ASSERT_EQ(r.by_rank.size(), 2u);
  EXPECT_NEAR(r.by_rank[0].waited_for.at(1), 30e-6, 1e-9) << "from 30 until rank 1 came at 60";
  EXPECT_NEAR(r.by_rank[0].waiting, 40e-6, 1e-9);
  EXPECT_TRUE(r.by_rank[1].waited_for.empty());
  EXPECT_NEAR(r.by_rank[1].kept_waiting, 30e-6, 1e-9);
  ASSERT_EQ(r.exchanges.size(), 1u);
  EXPECT_EQ(r.exchanges[0].axes, "{data}");
  EXPECT_EQ(r.exchanges[0].bytes, 4096);
  EXPECT_NEAR(r.exchanges[0].waiting, 25e-6, 1e-9);
  const std::string text = report_text(r, 30);
  expect_contains(text, "1 steps, from 3 to 3, of 2 of 2 ranks: 0.100 ms a step");
  expect_contains(text, "rank 1: 0.030");
  expect_contains(text, "Clocks of the ranks agree to 1.5 us");
  const Json json = Json::parse(report_json(r));
  EXPECT_NEAR(json["by_rank"][0]["waited_for"]["1"].get<double>(), 30e-6, 1e-9);
}

TEST_F(Traces, CountAStepAsOftenAsItWasDone) {
  for (const int rank : {0, 1}) {
    Json again = trace_of(rank, 30);
    again["tessera"]["ranks"][0]["first_step"] = 1;  // of a cycle that began behind a rewind
    write(rank, again);
    std::filesystem::rename(directory_ / "t" / cat("rank", rank, ".3.pt.trace.json"),
                            directory_ / "t" / cat("rank", rank, ".1.pt.trace.json"));
  }
  write(0, trace_of(0, 30));
  const ProfileReport r = report(write(1, trace_of(1, 30)));
  EXPECT_EQ(r.steps, 2);
  EXPECT_EQ(r.last_step, 3);
  EXPECT_NEAR(r.step_seconds, 100e-6, 1e-12);
}

TEST_F(Traces, OfOneRankBlameNobody) {
  const ProfileReport r = report(write(0, trace_of(0, 30)));
  EXPECT_EQ(r.ranks, 1);
  EXPECT_EQ(r.world_size, 2);
  EXPECT_TRUE(r.by_rank[0].waited_for.empty());
  EXPECT_NEAR(r.by_rank[0].waiting, 40e-6, 1e-9);
}

TEST_F(Traces, MergedSayTheSameByOneClock) {
  write(0, trace_of(0, 30));
  const std::string both = write(1, trace_of(1, 60, 250'000));
  const std::string merged = (directory_ / "merged.json").string();
  const MergedTraces result = merge_traces(std::span(&both, 1), merged);
  EXPECT_EQ(result.ranks, 2u);
  EXPECT_EQ(result.arrows, 1u);
  EXPECT_EQ(report_text(report(merged), 30), report_text(report(both), 30));
  double from = 0, to = 0;
  const Json content = Json::parse(read_file(merged));
  for (const auto& event : content["traceEvents"]) {
    if (event["ph"] == "s") from = event["ts"].get<double>();
    if (event["ph"] == "f") {
      to = event["ts"].get<double>();
      EXPECT_EQ(event["pid"], 0);
      EXPECT_EQ(event["tid"], 3);
    }
    if (event["ph"] == "X") {
      EXPECT_LT(event["ts"].get<double>(), 1100) << event.dump();
    }
  }
  EXPECT_NEAR(from, 1060, 1e-3);
  EXPECT_NEAR(to, 1060, 1e-3);
}

TEST_F(Traces, MakeAPageThatLoadsNothing) {
  write(0, trace_of(0, 30));
  Json other = trace_of(1, 60);
  other["tessera"]["ranks"][0]["host"] = "</script><b>&";
  const std::string both = write(1, other);
  const auto traces = read_traces(std::span(&both, 1));
  const std::string page = profile_page(traces, profile_report(traces));
  EXPECT_EQ(page.find("http:"), page.npos);
  EXPECT_EQ(page.find("https:"), page.npos);
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>"))
      << "no text of a trace ends the script";
  expect_contains(page, "default-src 'none'");
  expect_contains(page, "\"arrows\":[[1,60.000,0,60.000]]");
  const size_t begin = page.find("const data = ") + 13;
  const Json data = Json::parse(page.substr(begin, page.find(";\n", begin) - begin));
  ASSERT_EQ(data["ranks"].size(), 2u);
  EXPECT_EQ(data["ranks"][0]["events"].size(), 6u);
  EXPECT_EQ(data["ranks"][1]["host"], "</script><b>&");
}

TEST_F(Traces, DifferByWhatChanged) {
  const std::string a = write(0, trace_of(0, 30), "a"), b = write(0, trace_of(0, 50), "b");
  const Json json = Json::parse(diff_json(report(a), report(b)));
  EXPECT_NEAR(json["by_phase"][0]["difference"].get<double>(), 20e-6, 1e-9);
  std::string text = diff_text(report(a), report(b), 30);
  expect_contains(text, "forward   0.020  0.040  +0.020  +100.0 %");
  expect_contains(text, "A step takes 0.100 ms in A and 0.100 ms in B (+0.0 %)");
}

TEST_F(Traces, ThatDoNotBelongTogetherAreRefused) {
  write(0, trace_of(0, 30));
  const std::string mixed = write(1, trace_of(1, 30, 0, 3));
  expect_contains(user_error([&] { report(mixed); }), "is of a job of 3 ranks");
  const std::string paths[] = {(directory_ / "t/rank0.3.pt.trace.json").string(),
                               (directory_ / "t/rank0.3.pt.trace.json").string()};
  expect_contains(user_error([&] { read_traces(paths); }), "is there twice");
  Json other = trace_of(1, 40);
  other["tessera"]["ranks"][0]["run"] = "b";
  const std::string folder = write(1, other);
  expect_contains(user_error([&] { report(folder); }),
                  "rank1.3.pt.trace.json' is of another run than '");
  other = trace_of(1, 40);
  for (Json& event : other["traceEvents"])
    if (event["cat"] == "exchange") event["args"]["op"] = "all_gather";
  const std::string runs = write(1, other);
  expect_contains(user_error([&] { report(runs); }), "traces of different runs");
}

TEST_F(Traces, AreRefusedWithTheReason) {
  const std::string file = (directory_ / "x").string();
  auto refusal = [&](const std::string& content) {
    directory_.write("x", content);
    return user_error([&] { read_traces(std::span(&file, 1)); });
  };
  const std::string what = "'" + file + "' is no trace that --use_profiler wrote: ";
  expect_contains(refusal(""), what);
  expect_contains(refusal("{}"), "no \"tessera\" of version 1");
  expect_contains(refusal(R"({"traceEvents":[]})"), "no \"tessera\" of version 1");
  const std::string whole = trace_of(0, 30).dump();
  for (size_t size = 0; size < whole.size(); size += 37)
    expect_contains(refusal(whole.substr(0, size)), what);
  Json bad = trace_of(0, 30);
  bad["traceEvents"][2]["dur"] = -1;
  expect_contains(refusal(bad.dump()), "\"dur\" is negative");
  bad = trace_of(0, 30);
  bad["traceEvents"][2]["ts"] = 1e300;
  expect_contains(refusal(bad.dump()), "\"ts\" is missing or no number");
  bad = trace_of(0, 30);
  bad["traceEvents"][2]["pid"] = 7;
  expect_contains(refusal(bad.dump()), "an event is of a rank that it does not name");
  bad = trace_of(0, 30);
  bad["traceEvents"] = Json::array();
  directory_.write("x", bad.dump());
  expect_contains(user_error([&] { report(file); }), "holds no step");
  std::filesystem::create_directories(directory_ / "empty");
  const std::string empty = (directory_ / "empty").string();
  expect_contains(user_error([&] { report(empty); }), "there is no trace in");
}

}  // namespace
}  // namespace tessera
