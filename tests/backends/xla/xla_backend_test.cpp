// Training on XLA's CPU: what the CPU backend gives, on one rank and on several; state in place;
// the cache of compiled programs; a rank that does not come. Needs a plug-in.
#include "backends/xla/xla_backend.h"

#include <latch>
#include <thread>

#include "backends/xla/device_backend.h"
#include "tests/backends/xla/xla_plugin.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/comm/thread_channels.h"
#include "tests/programs/tiny_training.h"

namespace tessera::xla {
namespace {

constexpr int64_t kRows = 4, kLength = 16;  // rows of the global micro-batch

struct Case {
  ModelType family = ModelType::kLlamaV2;
  DType compute = DType::kF32;
  int64_t micro_batches = 1;
  ResidencyOptions residency = {};
  Spread spread = {};
};

struct Outcome {
  std::vector<double> losses, norms;
  double validation = 0;
  uint64_t state = 0;  // of one rank
  XlaBackend::Updates updates;
};

ProgramOptions options_of(const Case& c, const ModelConfig& model) {
  ProgramOptions options = spread_programs(c.spread, model, kRows, kLength, c.compute);
  options.accumulates = c.micro_batches > 1;
  options.residency = c.residency;
  return options;
}

Outcome train(const Case& c, Backend& backend, int rank, int steps = 5) {
  const ModelConfig model = tiny_model_of(c.family);
  const ProgramOptions options = options_of(c, model);
  Session session(build_programs(model_builder(model), options), backend, rank);
  begin_training(session);
  const int64_t rows = options.batch, first = options.parallelism.data_rank(rank) * rows;
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    std::vector<TinyBatch> batches;
    std::vector<MicroBatch> views;
    for (int64_t m = 0; m < c.micro_batches; ++m) {
      TinyBatch all(kRows, kLength, static_cast<uint64_t>(10 * step + m));
      batches.emplace_back(all, kLength, first, first + rows);
      batches.back().give_row_keys(static_cast<uint64_t>(step), m * kRows + first, rows);
    }
    for (const TinyBatch& batch : batches) views.push_back(batch.view());
    StepResult result = session.step(views, 1e-2, 0.5);
    EXPECT_TRUE(result.ok);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  TinyBatch all(kRows, kLength, 99);
  auto [loss, count, stop] = session.evaluate(TinyBatch(all, kLength, first, first + rows).view());
  outcome.validation = loss / static_cast<double>(count);
  outcome.state = fingerprint_of(session);
  if (auto* xla = dynamic_cast<XlaBackend*>(&backend)) outcome.updates = xla->updates();
  return outcome;
}

// As the ranks of a job.
std::vector<Outcome> train_on_xla(const Case& c, const std::filesystem::path& plugin) {
  const int world = c.spread.world;
  auto hub = std::make_shared<ThreadHub>(world);
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
      XlaBackend backend({plugin, {}}, channels.control.get());
      outcomes[static_cast<size_t>(rank)] = train(c, backend, rank);
    });
  }
  threads.clear();
  return outcomes;
}

void expect_alike(const Outcome& got, const Outcome& want, double bound) {
  for (size_t s = 0; s < want.losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], want.losses[s], bound * want.losses[s]) << s;
    EXPECT_NEAR(got.norms[s], want.norms[s], 20 * bound * want.norms[s]) << s;
  }
  EXPECT_NEAR(got.validation, want.validation, bound * want.validation);
}

double bound_of(const Case& c) { return c.compute == DType::kF32 ? 1e-5 : 2e-3; }

using XlaBackendTest = XlaTest;

// GPT-2 trains with dropout: it drops the same elements.
TEST_F(XlaBackendTest, TrainsEveryFamilyAsTheCpuDoes) {
  cpu::CpuBackend cpu(2, cpu::detect_isa());
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      const Case c{family, compute, 2};
      SCOPED_TRACE(cat(name(family), " ", name(compute)));
      const Outcome got = train_on_xla(c, plugin_)[0];
      expect_alike(got, train(c, cpu, 0), bound_of(c));
      EXPECT_GT(got.updates.in_place, 0);
      EXPECT_EQ(got.updates.copied, 0);
    }
  }
}

// As on a GPU, with one device of the CPU's.
TEST_F(XlaBackendTest, StateInBuffersOfTheDeviceGivesTheSameBits) {
  const Case c{ModelType::kGpt2, DType::kBF16};
  DeviceBackend device({.plugin = plugin_});
  EXPECT_EQ(device.description().substr(0, 9), "XLA, cpu,");
  const Outcome got = train(c, device, 0), want = train_on_xla(c, plugin_)[0];
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.validation, want.validation);
  EXPECT_EQ(got.state, want.state);
}

TEST_F(XlaBackendTest, RecomputationChangesNoBit) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    Case c{.compute = compute};
    const Outcome kept = train_on_xla(c, plugin_)[0];
    c.residency = {.share_numerator = 1, .regather = true};
    const Outcome again = train_on_xla(c, plugin_)[0];
    EXPECT_EQ(again.losses, kept.losses);
    EXPECT_EQ(again.norms, kept.norms);
    EXPECT_EQ(again.state, kept.state);
  }
}

class XlaRanks : public XlaBackendTest, public testing::WithParamInterface<Spread> {};

TEST_P(XlaRanks, TrainLikeOne) {
  Case c{.micro_batches = 2};
  cpu::CpuBackend cpu(2, cpu::detect_isa());
  const Outcome one = train(c, cpu, 0);
  c.spread = GetParam();
  c.residency.regather = true;
  for (const Outcome& outcome : train_on_xla(c, plugin_)) {
    expect_alike(outcome, one, bound_of(c));
    EXPECT_EQ(outcome.updates.copied, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, XlaRanks,
                         testing::Values(Spread{4}, Spread{4, "hybrid_shard", 2},
                                         Spread{4, "full_shard", 0, 2},
                                         Spread{4, "full_shard", 0, 4}),
                         [](const auto& spread) {
                           return cat(spread.param.strategy, spread.param.shard_degree, "_tp",
                                      spread.param.tp);
                         });

TEST_F(XlaBackendTest, KeepsWhatItCompiled) {
  ScratchDirectory cache;
  const Case c;
  auto train_cached = [&](int64_t& hits) {
    XlaBackend backend({plugin_, cache.path()}, nullptr);
    const Outcome outcome = train(c, backend, 0, 2);
    hits = backend.cache_hits();
    return outcome;
  };
  int64_t hits = -1;
  const Outcome first = train_cached(hits);
  EXPECT_EQ(hits, 0);
  EXPECT_EQ(train_cached(hits).state, first.state);
  EXPECT_EQ(hits, 3);
  // One that was cut is made anew, and one that is not a program at all.
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(cache / "xla"))
    entries.push_back(entry.path());
  ASSERT_EQ(entries.size(), 3u);
  std::filesystem::resize_file(entries[0], std::filesystem::file_size(entries[0]) / 2);
  write_file_atomic(entries[1], "no program");
  testing::internal::CaptureStderr();
  EXPECT_EQ(train_cached(hits).state, first.state);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(hits, 1);
  EXPECT_NE(log.find(entries[0].string() + "' is made anew: it is damaged"), log.npos) << log;
  EXPECT_NE(log.find(entries[1].string() + "' is made anew: it is no program"), log.npos) << log;
  train_cached(hits);
  EXPECT_EQ(hits, 3);
  // Other options of XLA's own may make other code.
  ::setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true", 1);
  train_cached(hits);
  ::unsetenv("XLA_FLAGS");
  EXPECT_EQ(hits, 0);
}

TEST_F(XlaBackendTest, RefusesWhatItCannotDo) {
  XlaBackend backend({plugin_, {}}, nullptr);
  EXPECT_FALSE(backend.shows_values());
  const ModelConfig model = tiny_model();
  ProgramOptions options = options_of({}, model);
  {
    Session session(build_programs(model_builder(model), options), backend);
    session.allocate();
    NodeObserver observer = [](const NodeEvent&) {};
    TinyBatch batch(kRows, kLength, 0);
    EXPECT_THROW(session.accumulate(std::vector{batch.view()}, &observer), UserError);
  }
  options.residency.offload = options.far_state = true;
  EXPECT_NE(user_error([&] {
              Session(build_programs(model_builder(model), options), backend);
            }).find("--device_type cpu"),
            std::string::npos);
}

// The others end at their deadline with an error that names it.
TEST_F(XlaBackendTest, NamesTheRankThatDoesNotCome) {
  auto hub = std::make_shared<ThreadHub>(3);
  std::vector<std::string> errors(3);
  std::latch compiled(3), given_up(2);
  std::vector<std::jthread> threads;
  const Case c{.spread = {3}};
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(15)});
      XlaBackend backend({plugin_, {}}, channels.control.get());
      const ModelConfig model = tiny_model();
      const ProgramOptions options = options_of({.spread = {3, "no_shard"}}, model);
      Session session(build_programs(model_builder(model), options), backend, rank);
      session.allocate();
      compiled.arrive_and_wait();
      if (rank == 1) given_up.wait();
      TinyBatch batch(options.batch, kLength, 0);
      try {
        session.accumulate(std::vector{batch.view()});
      } catch (const CommError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      if (rank != 1) given_up.count_down();
    });
  }
  threads.clear();
  for (int rank : {0, 2}) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    EXPECT_NE(error.find("rank 1"), error.npos) << error;
    EXPECT_NE(error.find("a run of XLA"), error.npos) << error;
  }
}

}  // namespace
}  // namespace tessera::xla
