// Sessions of several ranks, as threads and as processes, on the CPU backend.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <thread>

#include "comm/thread_channels.h"
#include "tests/base/error_expectation.h"
#include "tests/comm/rank_runner.h"
#include "tests/train/tiny_model.h"

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
};

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

Outcome train(const Job& job, int rank, Communicator* communicator, DType compute) {
  ModelConfig model = tiny_model_of(job.family);
  ProgramOptions options;
  options.parallelism = parallelism_of(job, model);
  int64_t rows = kRows / options.parallelism.data_ranks();
  options.batch = options.validation_batch = rows;
  options.length = kLength;
  options.compute = compute;
  options.accumulates = job.micro_batches > 1;
  options.freeze = job.freeze;
  cpu::CpuBackend backend(1, cpu::detect_isa(), communicator);
  Session session(
      build_programs(model_builder(model), options),
      [&](const Graph& graph) { return backend.compile(graph); }, rank);
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
  auto [loss, count] = session.evaluate(TinyBatch(all, kLength, first, first + rows).view());
  outcome.validation = loss / static_cast<double>(count);
  return outcome;
}

std::vector<Outcome> run(const Job& job, DType compute) {
  auto hub = std::make_shared<ThreadHub>(job.world);
  std::vector<Outcome> outcomes(static_cast<size_t>(job.world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.world; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(30)});
      outcomes[static_cast<size_t>(rank)] = train(job, rank, channels.communicator.get(), compute);
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
    testing::Values(Job{2}, Job{2, "no_shard"}, Job{4, "hybrid_shard", 2}, Job{2, "no_shard", 0, 2},
                    Job{4, "full_shard", 0, 2}, Job{4, "no_shard", 0, 4},
                    Job{2, "full_shard", 0, 1, 1}, Job{2, "shard_grad_op", 0, 1, 2, true},
                    Job{4, "full_shard", 0, 2, 2, false, ModelType::kGpt2},
                    Job{4, "no_shard", 0, 4, 1, false, ModelType::kGpt2},
                    Job{4, "full_shard", 0, 2, 2, false, ModelType::kGptNeox},
                    Job{4, "full_shard", 0, 2, 2, false, ModelType::kQwen3},
                    Job{4, "full_shard", 0, 2, 2, false, ModelType::kLlamaV2, {"lm_*", "*.0.*"}},
                    Job{2, "full_shard", 0, 1, 2, true, ModelType::kGpt2, {"*.wte.*", "*attn*"}}));

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

// Equal options, but the second rank's backend makes another program of the same graphs.
TEST(Agreement, RanksWithDifferentPlansAreRefused) {
  auto hub = std::make_shared<ThreadHub>(2);
  std::array<std::string, 2> errors;
  auto rank = [&](int r) {
    Channels channels = thread_channels(hub, r, {std::chrono::seconds(30)});
    cpu::CpuBackend backend(1, cpu::detect_isa(), channels.communicator.get());
    Device device;
    device.compile = [&](const Graph& graph) {
      Graph changed = graph;
      if (r == 1) changed.output("another", graph.nodes().back().outputs.front());
      return backend.compile(changed);
    };
    device.pool = &backend.pool();
    device.description = "test";
    device.communicator = channels.communicator.get();
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
