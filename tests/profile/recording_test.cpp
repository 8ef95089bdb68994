// From the steps of a program to a trace file and back.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "ops/primitive/elementwise.h"
#include "profile/profile_report.h"
#include "profile/step_profiler.h"
#include "runtime/host_executable.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/runtime/number_kernels.h"

namespace tessera {
namespace {

using Moment = ProfileSchedule::Moment;
using Part = ProfileSchedule::Part;

std::string phases_of(const ProfileSchedule& schedule, int64_t steps) {
  std::string text;
  for (int64_t step = 0; step < steps; ++step) {
    const Moment moment = schedule.at(step);
    text += moment.part == Part::kOff      ? '.'
            : moment.part == Part::kWarmup ? 'w'
            : moment.first && moment.last  ? 'X'
            : moment.first                 ? '['
            : moment.last                  ? ']'
                                           : 'a';
  }
  return text;
}

TEST(ProfileSchedule, RecordsSteps3To5ByDefault) { EXPECT_EQ(phases_of({}, 10), ".ww[a]...."); }
TEST(ProfileSchedule, Repeats) {
  EXPECT_EQ(phases_of({.wait = 1, .warmup = 1, .active = 2, .repeat = 2}, 12), ".w[].w[]....");
  EXPECT_EQ(phases_of({.wait = 0, .warmup = 0, .active = 1, .repeat = 0}, 5), "XXXXX");
  EXPECT_EQ(phases_of({.wait = 2, .warmup = 0, .active = 3, .repeat = 0}, 12), "..[a]..[a]..");
}

// sum += x * y in a scope of layer 3, and the old sum's negation in another phase.
Graph program() {
  const TensorType type{{1000}, DType::kF32};
  Graph g;
  Value x = g.input("x", InputKind::kArgument, type), y = g.input("y", InputKind::kArgument, type);
  Value sum = g.input("sum", InputKind::kState, type);
  {
    LayerScope layer(g, 3);
    Scope part(g, "mlp");
    x = mul(g, x, y);
  }
  g.set_phase(tessera::Phase::kBackward);
  g.update("sum", add(g, sum, x));
  g.output("negative", unary(g, UnaryKind::kNeg, x));
  return g;
}

class Recording : public testing::Test {
 protected:
  Recording() : executable(compile(program(), number_kernels())), arenas(executable->memory()) {
    executable->bind(state, arenas);
  }

  StepProfiler::Settings settings(ProfileSchedule schedule = {}) {
    StepProfiler::Settings s;
    s.schedule = schedule;
    s.directory = directory_.path() / "traces";
    s.run = "a run";
    s.programs.push_back({{"program", executable.get()}, 2});
    s.state = {{"parameters", 4000}};
    s.measure_light = [] { return SpeedOfLight{1e12, 5e11, 1e11}; };
    return s;
  }
  void run_steps(StepProfiler& profiler, int64_t first, int64_t steps, int runs = 2) {
    std::vector<float> numbers(1000, 1.0f);
    for (int64_t step = first; step < first + steps; ++step) {
      profiler.begin_step(step);
      profiler.has_data();
      for (int i = 0; i < runs; ++i)
        executable->run({{"x", numbers.data()}, {"y", numbers.data()}});
      profiler.end_step();
      if (profiler.is_full()) profiler.write();
    }
  }
  std::filesystem::path trace(int64_t step) {
    return StepProfiler::trace_path(directory_.path() / "traces", 0, step);
  }

  ScratchDirectory directory_;
  std::unique_ptr<HostExecutable> executable;
  HostState state;
  HostArenas arenas;
};

TEST_F(Recording, WritesStepsAsTheyRan) {
  StepProfiler profiler(settings());
  run_steps(profiler, 100, 7);
  profiler.finish();
  ASSERT_TRUE(std::filesystem::exists(trace(103)));
  const auto json = nlohmann::json::parse(read_file(trace(103)));
  EXPECT_EQ(json["tessera"]["ranks"][0]["steps"], 3);
  // Slices of a lane lie inside one another or beside, in the order of the file.
  std::vector<std::pair<double, double>> open;
  std::map<std::string, int> count;
  for (const auto& event : json["traceEvents"]) {
    ++count[cat(event["ph"].get<std::string>(), " ", event["name"].get<std::string>())];
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    while (!open.empty() && begin >= open.back().second - 1e-4) open.pop_back();
    if (!open.empty()) {
      EXPECT_GE(begin, open.back().first - 1e-4) << event.dump();
      EXPECT_LE(end, open.back().second + 1e-4) << event.dump();
    }
    open.emplace_back(begin, end);
  }
  EXPECT_EQ(count["X ProfilerStep#104"], 1);
  EXPECT_EQ(count["X data"], 3);
  EXPECT_EQ(count["X program"], 6);
  EXPECT_EQ(count["X layers.3"], 6);
  EXPECT_EQ(count["X mlp"], 6);
  EXPECT_EQ(count["X mul"], 6);
  EXPECT_EQ(count["X add"], 6);
  EXPECT_EQ(count["X negate"] + count["X neg"] + count["X unary"], 6);
  EXPECT_EQ(count["i memory peak of program"], 6);
}

TEST_F(Recording, IsReadBack) {
  StepProfiler profiler(settings());
  run_steps(profiler, 0, 6);
  const std::string paths[] = {(directory_.path() / "traces").string()};
  const std::vector<RankTrace> traces = read_traces(paths);
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].first_step, 3);
  EXPECT_EQ(traces[0].run, "a run");
  EXPECT_EQ(traces[0].state[0].bytes, 4000);
  ASSERT_EQ(traces[0].peaks.size(), 1u);
  EXPECT_EQ(traces[0].peaks[0].bytes, executable->plan()->live_peak_bytes);
  int64_t named = 0, highest = 0;
  for (const LiveBuffer& buffer : traces[0].peaks[0].live) named += buffer.bytes;
  EXPECT_EQ(named, traces[0].peaks[0].bytes) << "what is live is all of the peak";
  for (const TraceMemory& memory : traces[0].memory) highest = std::max(highest, memory.live);
  EXPECT_EQ(highest, executable->plan()->live_peak_bytes);
  const ProfileReport report = profile_report(traces);
  EXPECT_EQ(report.steps, 3);
  EXPECT_EQ(report.ranks, 1);
  double phases = 0, ops = 0;
  for (const ProfileRow& row : report.by_phase) phases += row.share;
  for (const ProfileRow& row : report.by_op) ops += row.share;
  EXPECT_NEAR(phases, 1, 1e-6) << "nothing is left over, nothing counted twice";
  EXPECT_NEAR(ops, 1, 1e-6);
  EXPECT_EQ(report.by_layer[0].name, "3");
  EXPECT_EQ(report.by_layer[0].calls, 2);
  EXPECT_EQ(report.by_layer[0].flops, 2000);
  EXPECT_GT(report.by_layer[0].light, 0);
  EXPECT_LE(report.by_layer[0].light, 1);
}

TEST_F(Recording, NobodyListensOutsideOfACycle) {
  StepProfiler profiler(settings({.wait = 1, .warmup = 0, .active = 1, .repeat = 1}));
  run_steps(profiler, 0, 1);
  EXPECT_FALSE(std::filesystem::exists(trace(0)));
  run_steps(profiler, 1, 4);
  EXPECT_TRUE(std::filesystem::exists(trace(1)));
  EXPECT_FALSE(std::filesystem::exists(trace(2)));
}

TEST_F(Recording, ACycleThatIsCutShortIsWritten) {
  StepProfiler profiler(settings({.wait = 0, .warmup = 1, .active = 5, .repeat = 1}));
  run_steps(profiler, 0, 3);
  profiler.begin_step(3);  // and there is no data
  profiler.finish();
  const auto read = read_trace(ReadFile(trace(1)));
  EXPECT_EQ(profile_report(read).steps, 2);
}

TEST_F(Recording, NothingIsWrittenBeforeTheStepHasBeenTold) {
  StepProfiler profiler(settings({.wait = 0, .warmup = 0, .active = 2, .repeat = 1}));
  for (int64_t step = 0; step < 2; ++step) {
    EXPECT_FALSE(profiler.is_full());
    profiler.begin_step(step);
    profiler.has_data();
    profiler.end_step();
  }
  EXPECT_TRUE(profiler.is_full());
  EXPECT_FALSE(std::filesystem::exists(trace(0)));
  profiler.write();
  EXPECT_FALSE(profiler.is_full());
  EXPECT_TRUE(std::filesystem::exists(trace(0)));
}

TEST_F(Recording, IsSaidAStepAhead) {
  StepProfiler profiler(settings({.wait = 2, .warmup = 1, .active = 1, .repeat = 1}));
  std::string said;
  for (int64_t step = 0; step < 6; ++step) {
    run_steps(profiler, step, 1);
    said += profiler.is_recording() ? 'r' : '.';
  }
  EXPECT_EQ(said, ".rrr..");
}

// As what looks for the first value that is not finite behind a step.
TEST_F(Recording, WhatRunsBetweenStepsTakesNoRoom) {
  StepProfiler profiler(settings({.wait = 0, .warmup = 1, .active = 2, .repeat = 1}));
  const std::vector<float> numbers(1000, 1.0f);
  for (int64_t step = 0; step < 3; ++step) {
    run_steps(profiler, step, 1);
    for (int i = 0; i < 3; ++i) executable->run({{"x", numbers.data()}, {"y", numbers.data()}});
  }
  const auto read = read_trace(ReadFile(trace(1)));
  EXPECT_EQ(read[0].lost, 0);
  const ProfileReport report = profile_report(read);
  EXPECT_EQ(report.steps, 2);
  EXPECT_EQ(report.by_layer[0].calls, 2);
}

TEST_F(Recording, MoreThanThereIsRoomForIsCounted) {
  StepProfiler profiler(settings({.wait = 0, .warmup = 0, .active = 1, .repeat = 1}));
  run_steps(profiler, 0, 1, 5);
  const auto read = read_trace(ReadFile(trace(0)));
  EXPECT_GT(read[0].lost, 0);
  expect_contains(report_text(profile_report(read), 10), "were not recorded");
}

TEST_F(Recording, ADiskThatIsFullCostsTheTraceOnly) {
  StepProfiler profiler(settings({.wait = 0, .warmup = 0, .active = 2, .repeat = 1}));
  run_steps(profiler, 0, 1);
  std::filesystem::remove_all(directory_.path() / "traces");
  write_file_atomic(directory_.path() / "traces", "");
  testing::internal::CaptureStderr();
  run_steps(profiler, 1, 3);
  expect_contains(testing::internal::GetCapturedStderr(), "the run goes on without this trace");
}

}  // namespace
}  // namespace tessera
