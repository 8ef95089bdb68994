// Sessions of several ranks, as threads and as processes, on the CPU backend.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <optional>
#include <thread>

#include "tests/base/error_expectation.h"
#include "tests/comm/rank_runner.h"
#include "tests/comm/thread_channels.h"
#include "tests/programs/tiny_model.h"
#include "tests/runtime/delayed_backend.h"
#include "train/training_run.h"

namespace tessera {
namespace {

struct Job {
  int world = 2;
  std::string strategy = "full_shard";
  int64_t shard_degree = 0, tp = 1;
  int64_t micro_batches = 2;
  bool unsharded = false;
  ModelType family = ModelType::kLlamaV2;
  std::vector<std::string> freeze = {};
  int64_t planned = 0;  // micro-batches of a step otherwise, where this one has fewer
  bool adapted = false;
};

ModelConfig model_of(const Job& job) {
  ModelConfig model = tiny_model_of(job.family);
  if (job.adapted) model.lora = {.rank = 4, .alpha = 8, .dropout = 0.1, .targets = {"all-linear"}};
  return model;
}

constexpr int64_t kRows = 4, kLength = 16;  // rows of the global micro-batch

Parallelism parallelism_of(const Job& job, const ModelConfig& model) {
  RunConfig config;
  config.sharding_strategy = job.strategy;
  config.shard_degree = job.shard_degree;
  config.tensor_parallel_degree = job.tp;
  config.unsharded_accumulation = job.unsharded;
  config.max_context_width = kLength;
  return make_parallelism(config, model, job.world, job.world);
}

struct Outcome {
  std::vector<StepResult> steps;
  double validation = 0;
};

// With `order`, on a device that works in its own time, its lanes in this order.
Outcome train(const Job& job, int rank, Communicator* communicator, DType compute,
              std::optional<uint64_t> order = {}) {
  ModelConfig model = model_of(job);
  ProgramOptions options;
  options.parallelism = parallelism_of(job, model);
  int64_t rows = kRows / options.parallelism.data_ranks();
  options.batch = options.validation_batch = rows;
  options.length = kLength;
  options.compute = compute;
  options.accumulates = std::max(job.micro_batches, job.planned) > 1;
  options.freeze = job.freeze;
  cpu::CpuBackend backend(1, cpu::detect_isa(), communicator);
  DelayedBackend delayed(backend.kernels(), order.value_or(0), {.copies_beside = true},
                         [&](int64_t bytes) {
                           return communicator ? communicator->allocate(bytes) : HostBuffer(bytes);
                         });
  Session session(build_programs(model_builder(model), options),
                  order ? static_cast<Backend&>(delayed) : backend, rank);
  session.allocate();
  EXPECT_EQ(session.allocated_bytes(), session.planned_memory().total());
  session.initialize(7, backend.pool());
  session.set_decay(0.1, false);
  int64_t first = options.parallelism.data_rank(rank) * rows;
  Outcome outcome;
  for (uint64_t step = 0; step < 5; ++step) {
    std::vector<TinyBatch> batches;
    std::vector<MicroBatch> views;
    for (int64_t m = 0; m < job.micro_batches; ++m) {
      TinyBatch all(kRows, kLength, step * 10 + static_cast<uint64_t>(m));
      batches.emplace_back(all, kLength, first, first + rows);
      batches.back().give_row_keys(step, m * kRows + first, rows);
    }
    for (const TinyBatch& b : batches) views.push_back(b.view());
    outcome.steps.push_back(session.step(views, 1e-2, 0.5));
  }
  TinyBatch all(kRows, kLength, 99);
  auto [loss, count, stop] = session.evaluate(TinyBatch(all, kLength, first, first + rows).view());
  outcome.validation = loss / static_cast<double>(count);
  return outcome;
}

std::vector<Outcome> run(const Job& job, DType compute, std::optional<uint64_t> order = {}) {
  auto hub = std::make_shared<ThreadHub>(job.world);
  std::vector<Outcome> outcomes(static_cast<size_t>(job.world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.world; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(30)});
      outcomes[static_cast<size_t>(rank)] =
          train(job, rank, channels.communicator.get(), compute, order);
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

class Ranks : public testing::TestWithParam<Job> {};

TEST_P(Ranks, TrainLikeOne) {
  const Job& job = GetParam();
  for (DType compute : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(name(compute));
    Job alone{1};
    alone.micro_batches = job.micro_batches;
    alone.family = job.family;
    alone.freeze = job.freeze;
    alone.adapted = job.adapted;
    Outcome one = train(alone, 0, nullptr, compute);
    std::vector<Outcome> many = run(job, compute);
    double bound = compute == DType::kF32 ? 1e-5 : 2e-3;
    for (const Outcome& outcome : many) {
      for (size_t s = 0; s < one.steps.size(); ++s) {
        EXPECT_NEAR(outcome.steps[s].loss, one.steps[s].loss, bound * one.steps[s].loss) << s;
        EXPECT_NEAR(outcome.steps[s].gradient_norm, one.steps[s].gradient_norm,
                    20 * bound * one.steps[s].gradient_norm)
            << s;
        EXPECT_EQ(outcome.steps[s].tokens, one.steps[s].tokens);
        EXPECT_EQ(outcome.steps[s].loss, many[0].steps[s].loss);  // to the bit
      }
      EXPECT_NEAR(outcome.validation, one.validation, bound * one.validation);
    }
    // The same job again gives the same bits.
    std::vector<Outcome> again = run(job, compute);
    for (size_t s = 0; s < one.steps.size(); ++s)
      EXPECT_EQ(again[0].steps[s].loss, many[0].steps[s].loss);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, Ranks,
    testing::Values(
        Job{2}, Job{2, "no_shard"}, Job{4, "hybrid_shard", 2}, Job{2, "no_shard", 0, 2},
        Job{4, "full_shard", 0, 2}, Job{4, "no_shard", 0, 4}, Job{2, "full_shard", 0, 1, 1},
        Job{.strategy = "shard_grad_op", .unsharded = true},
        Job{.world = 4, .tp = 2, .family = ModelType::kGpt2},
        Job{.world = 4,
            .strategy = "no_shard",
            .tp = 4,
            .micro_batches = 1,
            .family = ModelType::kGpt2},
        Job{.world = 4, .tp = 2, .family = ModelType::kGptNeox},
        Job{.world = 4, .tp = 2, .family = ModelType::kQwen3},
        Job{.world = 4, .tp = 2, .freeze = {"lm_*", "*.0.*"}}, Job{.adapted = true},
        Job{.strategy = "no_shard", .tp = 2, .adapted = true},
        Job{.world = 4, .tp = 2, .family = ModelType::kGpt2, .adapted = true},
        Job{.unsharded = true, .family = ModelType::kGpt2, .freeze = {"*.wte.*", "*attn*"}}));

// Exchanges begin and end at other moments of the step, between others and in another order.
TEST(Ranks, GiveTheSameBitsWheneverExchangesRun) {
  for (const Job& job :
       {Job{2, "full_shard"}, Job{2, "no_shard"}, Job{4, "hybrid_shard", 2},
        Job{.world = 4, .tp = 2}, Job{.strategy = "shard_grad_op", .unsharded = true}}) {
    std::vector<Outcome> expected = run(job, DType::kBF16);
    for (uint64_t order = 0; order < 3; ++order) {
      std::vector<Outcome> delayed = run(job, DType::kBF16, order);
      for (size_t s = 0; s < expected[0].steps.size(); ++s) {
        EXPECT_EQ(delayed[0].steps[s].loss, expected[0].steps[s].loss) << s;
        EXPECT_EQ(delayed[0].steps[s].gradient_norm, expected[0].steps[s].gradient_norm) << s;
      }
      EXPECT_EQ(delayed[0].validation, expected[0].validation);
    }
  }
}

// The last step before the data ends: its only micro-batch is the last of it.
TEST(Ranks, AStepMayHaveOneMicroBatchWhereOthersHaveMore) {
  for (Job job : {Job{2, "no_shard"}, Job{4, "hybrid_shard", 2}, Job{2, "full_shard"}}) {
    job.micro_batches = 1;
    std::vector<Outcome> always = run(job, DType::kBF16);
    job.planned = 3;
    std::vector<Outcome> once = run(job, DType::kBF16);
    for (size_t s = 0; s < always[0].steps.size(); ++s) {
      EXPECT_EQ(once[0].steps[s].loss, always[0].steps[s].loss);
      EXPECT_EQ(once[0].steps[s].gradient_norm, always[0].steps[s].gradient_norm);
    }
  }
}

// As a step that was skipped is run once more. What is left in the slots are sums of all ranks.
TEST(Ranks, AReplayedStepGivesTheSameSumsOfGradients) {
  constexpr int kRanks = 2;
  auto hub = std::make_shared<ThreadHub>(kRanks);
  std::array<std::array<std::vector<float>, 2>, kRanks> gradients;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(30)});
      Job job{kRanks, "no_shard"};
      ModelConfig model = tiny_model();
      ProgramOptions options = tiny_programs(2, kLength, DType::kBF16);
      options.parallelism = parallelism_of(job, model);
      cpu::CpuBackend backend(1, cpu::detect_isa(), channels.communicator.get());
      Session session(build_programs(model_builder(model), options), backend, rank);
      session.allocate();
      session.initialize(7, backend.pool());
      auto seed = static_cast<uint64_t>(rank);
      TinyBatch first(2, kLength, seed), second(2, kLength, 10 + seed), last(2, kLength, 20 + seed);
      std::vector<MicroBatch> views{first.view(), second.view(), last.view()};
      for (std::vector<float>& seen : gradients[static_cast<size_t>(rank)]) {
        session.accumulate(views);
        for (const FlatUnit& unit : session.programs().units) {
          std::vector<float> sums(static_cast<size_t>(unit.shard_size));
          session.state().read(cat("gradient.", unit.name), 0, std::span(sums));
          seen.insert(seen.end(), sums.begin(), sums.end());
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GT(gradients[0][0].size(), 1000u);
  EXPECT_EQ(gradients[0][0], gradients[0][1]);
  EXPECT_EQ(gradients[0][0], gradients[1][0]);
}

// All that a rank of train() saw, where the parent of a forked process finds it.
struct Seen {
  int64_t finished = 0;
  std::array<double, 11> values{};  // loss and norm of 5 steps, validation loss
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> train_over(Way way, const Job& job, DType compute) {
  size_t bytes = static_cast<size_t>(job.world) * sizeof(Seen);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  auto* seen = static_cast<Seen*>(memory);
  auto results = run_ranks({way, job.world}, [&](Communicator& communicator) {
    Outcome outcome = train(job, communicator.rank(), &communicator, compute);
    Seen& own = seen[communicator.rank()];
    size_t n = 0;
    for (const StepResult& step : outcome.steps) {
      own.values[n++] = step.loss;
      own.values[n++] = step.gradient_norm;
    }
    own.values[n++] = outcome.validation;
    own.finished = 1;
  });
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
  std::vector<Seen> all(seen, seen + job.world);
  ::munmap(memory, bytes);
  for (const Seen& one : all) EXPECT_EQ(one.finished, 1);
  return all;
}

TEST(Transports, GiveTheBitsOfThreads) {
  for (const Job& job : {Job{2}, Job{4, "hybrid_shard", 2}, Job{4, "full_shard", 0, 2}}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      std::vector<Seen> threads = train_over(Way::kThreads, job, compute);
      for (Way way : {Way::kStagedThreads, Way::kSharedMemory, Way::kGloo, Way::kMix}) {
        if (kThreadSanitizer && is_processes(way)) continue;
        SCOPED_TRACE(
            cat(name(way), ", ", job.world, " ranks, ", job.strategy, ", ", name(compute)));
        EXPECT_TRUE(train_over(way, job, compute) == threads);
      }
    }
  }
}

// Makes another program of the same graphs.
class OneMoreOutput final : public Backend {
 public:
  explicit OneMoreOutput(Backend& backend) : backend_(backend) {}
  std::unique_ptr<Executable> compile(const Graph& graph) override {
    Graph changed = graph;
    changed.output("another", graph.nodes().back().outputs.front());
    return backend_.compile(changed);
  }
  std::unique_ptr<State> make_state() override { return backend_.make_state(); }
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override {
    return backend_.make_arenas(memory);
  }

 private:
  Backend& backend_;
};

// Equal options, but the second rank's backend is another.
TEST(Agreement, RanksWithDifferentPlansAreRefused) {
  auto hub = std::make_shared<ThreadHub>(2);
  std::array<std::string, 2> errors;
  auto rank = [&](int r) {
    Channels channels = thread_channels(hub, r, {std::chrono::seconds(30)});
    cpu::CpuBackend backend(1, cpu::detect_isa(), channels.communicator.get());
    Device device;
    OneMoreOutput changed(backend);
    device.backend = r == 1 ? static_cast<Backend*>(&changed) : &backend;
    device.pool = &backend.pool();
    device.description = "test";
    device.control = channels.control.get();
    RunConfig config;
    config.train_batch_size = config.val_batch_size = 2;
    config.max_context_width = kLength;
    config.tokenizer = "byte";
    errors[static_cast<size_t>(r)] =
        user_error([&] { TrainingRun(config, tiny_model(), device).run(); });
  };
  std::thread second([&] { rank(1); });
  rank(0);
  second.join();
  for (const std::string& error : errors) {
    expect_contains(error, "ranks 0 and 1 have different plans: ");
    expect_contains(error, "their machines that differ: give all of them the same --cpu_isa");
  }
}

}  // namespace
}  // namespace tessera
