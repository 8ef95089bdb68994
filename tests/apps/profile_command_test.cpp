// What a run records, and what is made of it.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

class Profile : public Ranks {
 protected:
  static Words short_run(const Words& more) {
    return train({"--max_steps", "7", "--run_validation", "0", "--peak_tflops_per_gpu", "1"}) +
           more;
  }
};

TEST_F(Profile, RecordsSteps3To5AndChangesNoResult) {
  ASSERT_EQ(run(short_run({"--metrics_file", "plain"})).status, 0);
  ProgramResult result = run(short_run({"--use_profiler", "1", "--metrics_file", "recorded"}));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_contains(result.err,
                  "Trace of steps 3 to 5 written to profile_traces/rank0.3.pt.trace.json");
  EXPECT_GT(result.err.find("Trace of steps"), result.err.find("Batch 5 ")) << "behind its time";
  EXPECT_EQ(losses("plain"), losses("recorded"));
  EXPECT_EQ(names("profile_traces"), std::set<std::string>{"rank0.3.pt.trace.json"});

  result =
      run({"profile", "report", "profile_traces", "--rows_shown", "5", "--html_file", "a.html"});
  EXPECT_TRUE(read_file(path("a.html")).starts_with("<!DOCTYPE html>"));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "3 steps, from 3 to 5, of 1 of 1 ranks: ");
  for (const char* part : {"By phase", "forward", "optimizer", "By op", "By layer", "By rank (ms)",
                           "live at the peak", " others "})
    expect_contains(result.out, part);
  const Json json = Json::parse(run({"profile", "report", "profile_traces", "--json"}).out);
  double share = 0;
  for (const Json& row : json["by_op"]) share += row["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-6);
  ASSERT_FALSE(json["peak"]["live"].empty());

  result = run({"profile", "diff", "profile_traces", "profile_traces"});
  EXPECT_EQ(result.status, 0);
  expect_contains(result.out, "(+0.0 %)");
}

TEST_F(Profile, AStepThatIsSkippedLeavesTheOthersWhole) {
  ASSERT_EQ(run(short_run({"--use_profiler", "1", "--inject", "nan@step=4"})).status, 0);
  const ProgramResult result = run({"profile", "report", "profile_traces"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "3 steps, from 3 to 5, of 1 of 1 ranks: ");
  EXPECT_EQ(result.out.find("not recorded"), std::string::npos) << result.out;
}

TEST_F(Profile, OfSeveralRanksIsMergedWithArrows) {
  run_ranks(2, job(2, {"--sharding_strategy", "fsdp", "--use_profiler", "1", "--profile_dir", "t",
                       "--profiler_wait", "0", "--profiler_warmup", "1", "--profiler_active", "2",
                       "--profiler_repeat", "2"}));
  EXPECT_EQ(names("t"), (std::set<std::string>{"rank0.1.pt.trace.json", "rank0.4.pt.trace.json",
                                               "rank1.1.pt.trace.json", "rank1.4.pt.trace.json"}));
  ProgramResult result = run({"profile", "report", "t"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "4 steps, from 1 to 5, of 2 of 2 ranks");
  expect_contains(result.out, "all_gather");
  result = run({"profile", "merge", "t"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "give the files of one cycle, as in rank*.1.pt.trace.json");
  result = run({"profile", "merge", "t/rank0.1.pt.trace.json", "t/rank1.1.pt.trace.json",
                "--trace_file", "all.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "Merged 2 ranks, with ");
  // Every arrow begins and ends inside an exchange, which both ranks have.
  struct Slice {
    double begin, end;
    std::string op, sequence;
  };
  const Json all = Json::parse(read_file(path("all.json")));
  std::map<std::pair<int, int>, std::vector<Slice>> exchanges;
  for (const Json& event : all["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] != "exchange") continue;
    const double begin = event["ts"];
    exchanges[{event["pid"], event["tid"]}].push_back({begin, begin + event["dur"].get<double>(),
                                                       event["args"]["op"],
                                                       event["args"]["sequence"].dump()});
    EXPECT_EQ(event["args"]["ranks"], "0-1");
    EXPECT_GT(event["args"]["bytes_sent"], 0);
  }
  auto at = [&](const Json& event) {
    for (const Slice& slice : exchanges[{event["pid"], event["tid"]}])
      if (event["ts"] >= slice.begin - 1e-3 && event["ts"] <= slice.end + 1e-3)
        return cat(slice.op, " ", slice.sequence);
    return std::string("nothing");
  };
  std::map<int64_t, std::string> from;
  size_t arrows = 0;
  for (const Json& event : all["traceEvents"]) {
    if (event["ph"] == "s") from[event["id"]] = at(event);
    if (event["ph"] != "f") continue;
    ++arrows;
    EXPECT_NE(at(event), "nothing");
    EXPECT_EQ(at(event), from[event["id"]]);
  }
  EXPECT_GT(arrows, 10u);
  EXPECT_EQ(run({"profile", "report", "all.json"}).status, 0);
}

TEST_F(Profile, OfARunThatIsAskedToEndIsWrittenAndSoIsItsCheckpoint) {
  const pid_t child = start(
      train({"--max_steps", "100000", "--epochs", "100000", "--run_validation", "0",
             "--use_profiler", "1", "--profiler_active", "100000", "--checkpoint_dir", "c"}),
      [] {}, "asked");
  wait_for("asked.err", "Batch 6 ");
  ::kill(child, SIGTERM);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_contains(result.err, "Trace of steps 3 to ");
  expect_contains(result.err, "; saved. Give --resume_from_checkpoint to go on");
  EXPECT_EQ(run({"profile", "report", "profile_traces"}).status, 0);
}

TEST_F(Profile, SaysWhenNoStepIsRecorded) {
  ProgramResult result = run(short_run({"--use_profiler", "1", "--max_steps", "3"}));
  EXPECT_EQ(result.status, 0);
  expect_contains(result.err,
                  "--use_profiler: no step is recorded, as the first would be step 3, and the last "
                  "of this run is 2 (--max_steps 3)");
  EXPECT_EQ(result.err.find("no step is recorded"), result.err.rfind("no step is recorded"));
  // The data end first.
  result = run(short_run({"--use_profiler", "1", "--max_steps", "100000", "--epochs", "1",
                          "--profiler_wait", "50000"}));
  expect_contains(result.err, "no step is recorded, as the run ended before step 50002");
  expect_lacks(run(short_run({"--use_profiler", "1"})).err, "no step is recorded");
}

TEST_F(Profile, IsRefusedWithWhatToDo) {
  auto refused = [&](const Words& words, int status, const std::string& why) {
    ProgramResult refusal = run(words);
    EXPECT_EQ(refusal.status, status);
    expect_contains(refusal.message(), why);
  };
  refused({"profile"}, 2, "tessera profile report TRACES");
  refused({"profile", "diff", "a"}, 2, "diff A B");
  refused({"profile", "report", "none"}, 1, "none");
  refused({"profile", "report", "text.txt"}, 1, "'text.txt' is no trace that --use_profiler wrote");
  refused(short_run({"--use_profiler", "1", "--profile_nsys", "1"}), 2,
          "--use_profiler and --profile_nsys are profilers of the same steps: give one");
  refused(short_run({"--nsys_end_step", "3"}), 2, "--nsys_end_step needs --nsys_start_step");
  refused(short_run({"--nsys_start_step", "3", "--nsys_end_step", "3"}), 2, "is to be behind");
  refused(short_run({"--use_profiler", "1", "--eval_only", "1"}), 2, "--eval_only has none");
  refused(short_run({"--use_profiler", "1", "--profile_dir", "text.txt/x"}), 1, "text.txt/x");
}

class Nsys : public Profile {
 protected:
  // The calls that a run makes of the stubs; those of layers and ops among the ranges on request.
  Words calls(const Words& words, std::string* log = nullptr, bool fails = false,
              bool all = false) {
    ProgramResult result = run(words, [&] {
      ::setenv("LD_LIBRARY_PATH", CUDA_STUBS, 1);
      ::setenv("NVTX_INJECTION64_PATH", (std::string(CUDA_STUBS) + "/libnvtx_tool.so").c_str(), 1);
      ::setenv("TESSERA_STUB_CALLS", path("calls").c_str(), 1);
      if (fails) ::setenv("TESSERA_STUB_FAILS", "1", 1);
    });
    EXPECT_EQ(result.status, 0) << result.err;
    if (log) *log = result.err;
    Words list;
    const std::string text = exists("calls") ? read_file(path("calls")) : "";
    Words open;
    for (std::string_view line : split(trim(text), '\n')) {
      const bool pops = line == "pop";
      if (pops && open.empty()) ADD_FAILURE() << "a range is closed that is not open";
      const std::string range(pops ? open.back() : line);
      if (pops) open.pop_back();
      if (line.starts_with("push ")) open.emplace_back(line);
      const bool outer = range.starts_with("push iteration") || range == "push forward" ||
                         range == "push backward" || range == "push opt_step";
      if (all || outer || !range.starts_with("push ")) list.emplace_back(line);
    }
    EXPECT_TRUE(open.empty()) << "all ranges are closed again";
    return list;
  }
  static Words step(int number, int micro_batches = 1) {
    Words list{cat("push iteration", number)};
    for (int i = 0; i < micro_batches; ++i)
      list = list + Words{"push forward", "pop", "push backward", "pop"};
    return list + Words{"push opt_step", "pop", "pop"};
  }
};

TEST_F(Nsys, CapturesFromStep3ToTheEndWithRanges) {
  EXPECT_EQ(calls(short_run({"--profile_nsys", "1", "--max_steps", "5"})),
            Words{"start"} + step(3) + step(4) + Words{"stop"});
}

TEST_F(Nsys, CapturesAWindow) {
  std::string log;
  EXPECT_EQ(calls(short_run({"--nsys_start_step", "2", "--nsys_end_step", "4",
                             "--gradient_accumulation_steps", "2"}),
                  &log),
            Words{"start"} + step(2, 2) + step(3, 2) + Words{"stop"});
  EXPECT_LT(log.find("====== Start nsys profiling ======"),
            log.find("====== Stop nsys profiling ======"));
}

// What encloses an op: step, phase and layer.
TEST_F(Nsys, NamesLayersAndOps) {
  const Words all =
      calls(short_run({"--nsys_start_step", "1", "--nsys_end_step", "2"}), nullptr, false, true);
  Words open;
  int64_t found = 0;
  for (const std::string& line : all) {
    if (line == "pop") {
      open.pop_back();
    } else if (line.starts_with("push ")) {
      open.push_back(line);
      found += line.starts_with("push attention in layers.1") && open[0] == "push iteration1" &&
               open[1] == "push forward" && open[2] == "push layer 1";
    }
  }
  EXPECT_EQ(found, 1);
}

TEST_F(Nsys, GoesOnWithoutATool) {
  std::string log;
  ::setenv("TESSERA_STUB_REFUSES", "1", 1);
  EXPECT_EQ(calls(short_run({"--profile_nsys", "1", "--max_steps", "4"}), &log),
            (Words{"start", "stop"}));
  ::unsetenv("TESSERA_STUB_REFUSES");
  expect_contains(log, "does not want to be attached");
  expect_contains(log, "no tool takes NVTX ranges");
}

TEST_F(Nsys, CapturesFromStep10) {
  std::string log;
  const Words list = calls(short_run({"--use_nsight", "1", "--max_steps", "11"}), &log, true);
  EXPECT_EQ(list, Words{"start"} + step(10) + Words{"stop"});
  expect_contains(log, "========= NSight profiling intiated at step 10 =========");
  expect_contains(log, "========= NSight profiling stopped =========");
  expect_contains(log, "cudaProfilerStop failed with CUDA's error 35");
}

TEST_F(Nsys, SaysWhenNoStepIsCaptured) {
  std::string log;
  calls(short_run({"--use_nsight", "1", "--max_steps", "10"}), &log);
  EXPECT_FALSE(exists("calls"));
  expect_contains(log, "--use_nsight: no step is recorded, as the first would be step 10");
  calls(short_run({"--nsys_start_step", "70"}), &log);
  expect_contains(log, "--nsys_start_step: no step is recorded, as the first would be step 70");
  const Words saved{"--checkpoint_dir", "c", "--resume_from_checkpoint", "c"};
  ASSERT_EQ(run(short_run(saved)).status, 0);
  calls(short_run(saved +
                  Words{"--max_steps", "9", "--nsys_start_step", "2", "--nsys_end_step", "4"}),
        &log);
  expect_contains(log,
                  "no step is recorded, as this run begins with step 7, behind "
                  "--nsys_end_step 4");
}

TEST_F(Nsys, WithoutCudaGoesOn) {
  // Whatever this machine has: the library that is found first has none of the functions.
  std::filesystem::create_directories(path("no_cuda"));
  std::filesystem::copy_file(std::filesystem::path(CUDA_STUBS) / "libnvtx_tool.so",
                             path("no_cuda/libcudart.so"));
  ProgramResult result = run(short_run({"--profile_nsys", "1"}),
                             [&] { ::setenv("LD_LIBRARY_PATH", path("no_cuda").c_str(), 1); });
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err,
                  "libcudart.so with cudaProfilerStart cannot be loaded: there is none");
}

}  // namespace
}  // namespace tessera
