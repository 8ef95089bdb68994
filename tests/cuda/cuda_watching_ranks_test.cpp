// What runs of several ranks tell, each a thread with an emulated GPU of its own: times of
// exchanges, and where a rank waits for one that does not come.
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "flight/flight_recorder.h"
#include "flight/postmortem.h"
#include "profile/profile_report.h"
#include "profile/step_profiler.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/comm/thread_channels.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_training.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kGlobalBatch = 2, kTokens = 16;

// Ranks whose exchanges NCCL launches from threads of its own.
class CudaWatchingRanks : public CudaTest {
 protected:
  template <class Work>
  void on_ranks(const Work& work) {
    auto hub = std::make_shared<ThreadHub>(2);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
        work(rank, *channels.control);
      });
    }
  }
  static ProgramOptions sharded() {
    return spread_programs({.world = 2}, tiny_model(), kGlobalBatch, kTokens, DType::kF32);
  }
};

TEST_F(CudaWatchingRanks, WriteTracesWithTheirExchanges) {
  reset(1, 2);
  const ScratchDirectory directory;
  int64_t waits = 0;
  on_ranks([&](int rank, Control& control) {
    CudaBackend backend({.gpu = rank, .control = &control});
    const ProgramOptions options = sharded();
    Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
    session.allocate();
    StepProfiler::Settings settings;
    settings.schedule = {.wait = 1, .warmup = 0, .active = 1};
    settings.directory = directory.path();
    settings.rank = rank;
    settings.world_size = 2;
    settings.control = &control;
    for (const Session::Program& program : session.compiled()) {
      if (program.name != "accumulate_first" && program.name != "apply") continue;
      settings.programs.push_back({{program.name, program.executable.get()}, 1});
      if (rank > 0) continue;
      for (const Instruction& i : program.executable->plan()->instructions)
        waits += i.kind == InstructionKind::kWait;
    }
    StepProfiler profiler(settings);
    for (int64_t s = 0; s < 3; ++s) {
      profiler.begin_step(s);
      profiler.has_data();
      TinyBatch batch(options.batch, kTokens, static_cast<uint64_t>(s));
      EXPECT_TRUE(session.step(std::vector{batch.view()}, 0.01, 1.0).ok);
      profiler.end_step();
    }
    profiler.finish();
  });
  const std::vector<RankTrace> traces =
      read_traces(std::vector<std::string>{directory.path().string()});
  ASSERT_EQ(traces.size(), 2u);
  for (const RankTrace& trace : traces) {
    int64_t exchanges = 0;
    for (const TraceEvent& event : trace.events) {
      if (event.kind != TraceEvent::Kind::kExchange) continue;
      ++exchanges;
      EXPECT_GT(event.end, event.begin) << event.op << " took time";
      EXPECT_GT(event.bytes, 0);
      EXPECT_EQ(event.ranks, "0-1");
    }
    EXPECT_EQ(exchanges, waits);
  }
  const ProfileReport report = profile_report(traces);
  EXPECT_EQ(report.ranks, 2);
  EXPECT_FALSE(report.exchanges.empty());
}

// A rank that does not come: the others say where they wait, in their error and in the ring.
TEST_F(CudaWatchingRanks, NamesTheLayerInWhichARankHangs) {
  reset(1, 2);
  const ScratchDirectory directory;
  std::string error;
  on_ranks([&](int rank, Control& control) {
    FlightRecorder recorder(
        {.directory = directory.path() / "attempt_0", .rank = rank, .world_size = 2, .job = "job"});
    CudaBackend backend(
        {.gpu = rank, .control = &control, .deadline = std::chrono::milliseconds(6000)});
    const ProgramOptions options = sharded();
    Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
    session.allocate();
    for (const Session::Program& program : session.compiled())
      recorder.add_program(program.name, *program.executable);
    control.barrier("ready");
    if (rank == 1) {
      EXPECT_THROW(control.barrier("over"), CommError) << "the job has failed";
      return;
    }
    TinyBatch batch(options.batch, kTokens, 0);
    error = message_of<CommError>([&] {
      session.accumulate(std::vector{batch.view()});
      session.start_update(1e-2, 1, {}).result();
    });
  });
  expect_contains(error, "rank 0 has waited 6 s, the device is in a wait for all_gather in ");
  const FlightDirectory flights = read_flights(directory.path());
  const Postmortem postmortem = postmortem_of(flights, 0);
  expect_contains(postmortem.ranks.at(0).now, "waiting for all_gather in ");
  EXPECT_EQ(postmortem.ranks.at(0).program, "accumulate_first");
  findings();  // what was broken off was begun by one rank only
}

}  // namespace
}  // namespace tessera::cuda
