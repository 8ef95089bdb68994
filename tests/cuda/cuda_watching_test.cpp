// What a run on the emulated GPU tells while it runs: progress beside recorded graphs, instructions
// as they are issued, times kernel by kernel from the double of CUPTI or by events; a profile with
// all of it; and the same bits whoever listens.
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cupti_api.h"
#include "planning/device_sheet.h"
#include "profile/profile_report.h"
#include "profile/step_profiler.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kBatch = 2, kLength = 16;

// What was heard, of all programs.
struct Heard final : RunListener {
  explicit Heard(Hearing hears) : level(hears) {}
  Hearing hearing() const override { return level; }
  void begins(const Executable& program) override {
    EXPECT_FALSE(running) << "one run after another";
    running = &program;
    last = -1;
    ++runs;
  }
  void done(size_t instruction, const TimeSpan*) override {
    ASSERT_TRUE(running);
    EXPECT_LT(instruction, running->plan()->instructions.size());
    EXPECT_GT(static_cast<int64_t>(instruction), last);
    last = static_cast<int64_t>(instruction);
    ++instructions;
  }
  void ran(size_t instruction, const TimeSpan& at, const TimeSpan* exchange) override {
    EXPECT_LE(at.begin, at.end);
    EXPECT_GE(at.begin, behind) << "one instruction behind the other";
    behind = at.end;
    done(instruction, exchange);
  }
  void worked(const DeviceWork& work) override {
    ASSERT_TRUE(running);
    const Instruction& instruction = running->plan()->instructions.at(work.instruction);
    EXPECT_EQ(work.lane, instruction.lane);
    EXPECT_LE(work.at.begin, work.at.end);
    EXPECT_LE(work.at.end, monotonic_nanoseconds() + 50'000'000) << "by the host's clock";
    if (instruction.kind == InstructionKind::kCopy || instruction.kind == InstructionKind::kFill)
      copied += work.bytes;
    names.insert(std::string(work.name));
    lanes.insert(work.lane);
  }
  void ends() override {
    ASSERT_TRUE(running);
    running = nullptr;
    ++ended;
  }
  Hearing level;
  const Executable* running = nullptr;
  int64_t last = -1, runs = 0, ended = 0, instructions = 0, copied = 0, behind = 0;
  std::set<std::string> names;
  std::set<Lane> lanes;
};

// Bytes that a step of one micro-batch copies and fills by its plans.
int64_t planned_copies(const Session& session) {
  int64_t bytes = 0;
  for (const Session::Program& program : session.compiled())
    if (program.name == "accumulate_first" || program.name == "apply")
      for (const Instruction& i : program.executable->plan()->instructions)
        if (i.kind == InstructionKind::kCopy || i.kind == InstructionKind::kFill) bytes += i.bytes;
  return bytes;
}
int64_t planned_instructions(const Session& session) {
  size_t count = 0;
  for (const Session::Program& program : session.compiled())
    if (program.name == "accumulate_first" || program.name == "apply")
      count += program.executable->plan()->instructions.size();
  return static_cast<int64_t>(count);
}

class CudaWatching : public CudaTest {
 protected:
  struct Training {
    CudaBackend backend;
    Session session;
    explicit Training(bool cupti = true, DType compute = DType::kF32, bool offload = false)
        : backend({.cupti = cupti}),
          session(build_programs(model_builder(tiny_model()), options_of(compute, offload)),
                  backend) {
      session.allocate();
      ThreadPool pool(1);
      session.initialize(7, pool);
      session.set_decay(0.1, false);
    }
    static ProgramOptions options_of(DType compute, bool offload) {
      ProgramOptions options = tiny_programs(kBatch, kLength, compute);
      options.residency.offload = options.far_state = offload;
      if (offload) options.residency.share_numerator = 0;
      return options;
    }
    void listen(RunListener& listener) {
      for (const Session::Program& program : session.compiled())
        EXPECT_TRUE(program.executable->add_listener(listener));
    }
    void leave(RunListener& listener) {
      for (const Session::Program& program : session.compiled())
        program.executable->remove_listener(listener);
    }
    void step(uint64_t number) {
      TinyBatch batch(kBatch, kLength, number);
      EXPECT_TRUE(session.step(std::vector{batch.view()}, 0.01, 1.0).ok);
    }
    // With the results of each step read when the next one has been started.
    void steps_ahead(uint64_t first, uint64_t end) {
      std::vector<PendingStep> running;
      auto read = [&](size_t but) {
        for (; running.size() > but; running.erase(running.begin()))
          EXPECT_TRUE(running.front().result().ok);
      };
      for (uint64_t s = first; s < end; ++s) {
        TinyBatch batch(kBatch, kLength, s);
        session.accumulate(std::vector{batch.view()});
        running.push_back(session.start_update(0.01, 1.0, {}));
        read(1);
      }
      read(0);
    }
    void steps(uint64_t first, uint64_t end) {
      for (uint64_t s = first; s < end; ++s) step(s);
    }
    uint64_t state() { return fingerprint_of(session); }
  };
  static uint64_t unwatched(uint64_t steps, bool offload = false) {
    Training training(true, DType::kF32, offload);
    training.steps(0, steps);
    return training.state();
  }
};

// The flight recorder is such a listener, on every run.
TEST_F(CudaWatching, KeepsGraphsWhereNobodyNeedsTimes) {
  for (uint64_t seed : {1, 2}) {
    reset(seed);
    const uint64_t expected = unwatched(5);
    const int64_t graphs = graph_launches();
    EXPECT_EQ(graphs, 2 * 4) << "of two programs all runs but the first";
    Training training;
    Heard heard(Hearing::kProgress);
    training.listen(heard);
    training.steps_ahead(0, 5);
    EXPECT_EQ(training.state(), expected);
    EXPECT_EQ(graph_launches() - graphs, graphs);
    EXPECT_EQ(cupti_calls(), 0);
    EXPECT_EQ(heard.runs, 10);
    EXPECT_EQ(heard.ended, 10) << "results are there: all runs are over";
  }
}

// Else a rank that hangs in its data would seem to hang in the op that was seen last.
TEST_F(CudaWatching, HearsOfTheEndWhileNobodyWaits) {
  Training training;
  Heard heard(Hearing::kProgress);
  training.listen(heard);
  TinyBatch batch(kBatch, kLength, 0);
  training.session.accumulate(std::vector{batch.view()});
  CudaDevice& device = training.backend.device();
  device.driver().call(device.driver().stream_synchronize, device.stream(Lane::kCompute));
  auto ended = [&] {
    const auto guard = device.lock();
    return heard.ended;
  };
  const double begin = monotonic_seconds();
  while (ended() == 0 && monotonic_seconds() < begin + 20) std::this_thread::yield();
  EXPECT_EQ(ended(), 1);
}

TEST_F(CudaWatching, TellsEveryInstructionAsItIsIssued) {
  const uint64_t expected = unwatched(4);
  const int64_t graphs = graph_launches();
  Training training;
  training.steps(0, 2);
  Heard heard(Hearing::kIssue);
  training.listen(heard);
  training.steps(2, 3);
  EXPECT_EQ(heard.instructions, planned_instructions(training.session));
  training.leave(heard);
  training.steps(3, 4);
  EXPECT_EQ(training.state(), expected);
  EXPECT_EQ(graph_launches() - graphs, 2 * 2);
  EXPECT_EQ(cupti_calls(), 0);
}

TEST_F(CudaWatching, TakesTheTimesOfKernelsFromCupti) {
  for (bool offload : {false, true}) {
    reset(3);
    const uint64_t expected = unwatched(4, offload);
    Training training(true, DType::kF32, offload);
    training.steps(0, 1);
    EXPECT_EQ(cupti_calls(), 0);
    Heard heard(Hearing::kTimes), recorder(Hearing::kProgress);
    training.listen(recorder);
    training.listen(heard);
    training.steps(1, 2);
    EXPECT_EQ(heard.runs, 2);
    EXPECT_EQ(heard.ended, 2);
    EXPECT_EQ(heard.instructions, planned_instructions(training.session));
    EXPECT_EQ(heard.copied, planned_copies(training.session));
    for (const char* name : {"adamw", "product of cublasLt"})
      EXPECT_TRUE(heard.names.contains(name)) << name;
    EXPECT_FALSE(heard.names.contains("mark_progress")) << "it is of no instruction";
    EXPECT_EQ(heard.lanes.contains(Lane::kCopy), offload);
    training.leave(heard);
    const int64_t calls = cupti_calls();
    EXPECT_GT(calls, 0);
    training.steps(2, 4);
    EXPECT_EQ(cupti_calls(), calls) << "disabled again";
    EXPECT_EQ(training.state(), expected);
  }
  reset(1);  // what CUPTI's double has to say of the end
}

// What shows nodes to an observer waits for each; times are still those of the device.
TEST_F(CudaWatching, TakesTimesBesideAnObserver) {
  Training training;
  Heard heard(Hearing::kTimes);
  training.listen(heard);
  int64_t nodes = 0;
  const NodeObserver observer = [&](const NodeEvent&) { ++nodes; };
  TinyBatch batch(kBatch, kLength, 0);
  training.session.accumulate(std::vector{batch.view()}, &observer);
  EXPECT_EQ(heard.ended, 1);
  EXPECT_GT(nodes, 50);
  EXPECT_GT(heard.instructions, nodes);
  EXPECT_TRUE(heard.names.contains("product of cublasLt"));
  training.leave(heard);
}

TEST_F(CudaWatching, TakesTimesByEventsWithoutCupti) {
  const uint64_t expected = unwatched(3);
  for (bool refused : {false, true}) {
    if (refused) refuse_cupti(kCuptiErrorMultipleSubscribers);
    Training training(refused);
    Heard heard(Hearing::kTimes);
    training.listen(heard);
    training.steps(0, 2);
    EXPECT_EQ(heard.instructions, 2 * planned_instructions(training.session));
    EXPECT_EQ(heard.copied, 2 * planned_copies(training.session));
    EXPECT_TRUE(heard.names.contains("rms_norm cuda")) << "kernels as the plan names them";
    EXPECT_EQ(cupti_calls() > 0, refused);
    training.leave(heard);
    training.steps(2, 3);
    EXPECT_EQ(training.state(), expected);
  }
}

TEST_F(CudaWatching, WritesTheProfileThatTheCpuHas) {
  const ScratchDirectory directory;
  Training training;
  StepProfiler::Settings settings;
  settings.schedule = {.wait = 1, .warmup = 1, .active = 2};
  settings.directory = directory.path();
  std::set<std::string> ops;
  for (const Session::Program& program : training.session.compiled()) {
    if (program.name == "evaluate") continue;
    settings.programs.push_back({{program.name, program.executable.get()}, 1});
  }
  StepProfiler profiler(settings);
  EXPECT_EQ(cupti_calls(), 0);
  for (int64_t s = 0; s < 5; ++s) {
    profiler.begin_step(s);
    profiler.has_data();
    training.step(static_cast<uint64_t>(s));
    profiler.end_step();
  }
  profiler.finish();
  const auto path = StepProfiler::trace_path(directory.path(), 0, 2);
  const std::vector<RankTrace> traces = read_traces(std::vector<std::string>{path.string()});
  int64_t slices = 0;
  for (const TraceEvent& event : traces[0].events) slices += event.kind == TraceEvent::Kind::kOp;
  EXPECT_EQ(slices, 2 * planned_instructions(training.session));
  const ProfileReport report = profile_report(traces);
  EXPECT_EQ(report.steps, 2);
  ASSERT_GE(report.by_layer.size(), 2u);
  EXPECT_EQ(report.by_layer[0].name, "0");
  EXPECT_EQ(report.by_layer[1].name, "1");
  EXPECT_LT(report.by_layer[1].light, 0) << "nothing is known of the emulated device";
  int64_t peak = 0;
  for (const Session::Program& program : training.session.compiled())
    if (program.name != "evaluate")
      peak = std::max(peak, program.executable->plan()->live_peak_bytes);
  EXPECT_EQ(report.peak.bytes, peak);
  const auto json = nlohmann::json::parse(read_file(path));
  int64_t kernels = 0, attention = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event.value("cat", "") != "kernel") continue;
    ++kernels;
    EXPECT_EQ(event["tid"], 11) << event.dump();
    EXPECT_FALSE(event["args"]["program"].get<std::string>().empty());
    if (event["args"]["op"] == "attention") {
      EXPECT_EQ(event["args"]["phase"], "forward");
      EXPECT_TRUE(event["args"].contains("layer"));
      ++attention;
    }
  }
  EXPECT_GT(kernels, slices / 2);
  EXPECT_GE(attention, 2 * 2) << "of two steps and layers";
}

// Shares of light are of a data sheet, where the name of the GPU leaves no doubt.
TEST(DeviceSheets, AreFoundByTheNamesThatTheDriverHas) {
  ASSERT_TRUE(device_sheet_of("NVIDIA H100 80GB HBM3"));
  EXPECT_EQ(device_sheet_of("NVIDIA H100 80GB HBM3"), &device_sheet("h100"));
  EXPECT_EQ(device_sheet_of("NVIDIA H200"), &device_sheet("h200"));
  EXPECT_EQ(device_sheet_of("NVIDIA A100-SXM4-80GB"), &device_sheet("a100"));
  for (const char* other :
       {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB", "tessera emulated GPU", ""})
    EXPECT_EQ(device_sheet_of(other), nullptr) << other;
}

TEST_F(CudaWatching, SaysWhereTheDeviceFailed) {
  for (int64_t n : {2, 60}) {
    reset(1);
    Training training;
    Heard heard(Hearing::kProgress);
    training.listen(heard);
    training.steps(0, 2);
    fail_launch(launches() + n, kCudaErrorIllegalAddress);
    const std::string error = message_of<DeviceError>([&] { training.steps(2, 4); });
    expect_contains(error, "ILLEGAL_ADDRESS");
    expect_contains(error, "the device is in ");
    expect_contains(error, n == 2 ? " (forward)" : " in layers.");
  }
  findings();  // memory of a device that has failed goes with the process only
}

}  // namespace
}  // namespace tessera::cuda
