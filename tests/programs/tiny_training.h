#pragma once
#include <string>
#include <vector>

#include "options/run_config.h"
#include "programs/parallelism.h"
#include "tests/programs/tiny_model.h"

namespace tessera {

// First weights, the same everywhere.
inline void begin_training(Session& session) {
  session.allocate();
  ThreadPool pool(1);
  session.initialize(7, pool);
  session.set_decay(0.1, false);
}

// What steps gave.
struct Trace {
  std::vector<double> losses, norms;
  double validation = 0;
  uint64_t state = 0;  // all that a checkpoint holds
  bool operator==(const Trace&) const = default;
};

// Steps [first, end) of two micro-batches; results are read when `ahead` further steps have been
// started.
inline Trace train_steps(Session& session, int64_t rows, int64_t length, uint64_t first,
                         uint64_t end, size_t ahead = 0, const NodeObserver* observer = nullptr) {
  Trace trace;
  std::vector<PendingStep> running;
  auto read = [&](size_t but) {
    for (; running.size() > but; running.erase(running.begin())) {
      StepResult result = running.front().result();
      EXPECT_TRUE(result.ok);
      trace.losses.push_back(result.loss);
      trace.norms.push_back(result.gradient_norm);
    }
  };
  for (uint64_t s = first; s < end; ++s) {
    // Gone when the step may still be at work.
    TinyBatch a(rows, length, 2 * s), b(rows, length, 2 * s + 1);
    a.give_row_keys(s, 0, rows);
    b.give_row_keys(s, rows, rows);
    session.accumulate(std::vector{a.view(), b.view()}, observer);
    running.push_back(session.start_update(0.01, 1.0, {}));
    read(ahead);
  }
  read(0);
  TinyBatch held_out(rows, length, 99);
  trace.validation = session.evaluate(held_out.view()).loss_sum;
  trace.state = fingerprint_of(session);
  return trace;
}

// How a job is spread over its ranks.
struct Spread {
  int world = 1;
  std::string strategy = "full_shard";
  int64_t shard_degree = 0, tp = 1;
};

inline Parallelism parallelism_of(const Spread& spread, const ModelConfig& model, int64_t length) {
  if (spread.world == 1) return {};
  RunConfig config;
  config.sharding_strategy = spread.strategy;
  config.shard_degree = spread.shard_degree;
  config.tensor_parallel_degree = spread.tp;
  config.max_context_width = length;
  return make_parallelism(config, model, spread.world, spread.world);
}

// tiny_programs() of one of the ranks; `rows` are those of the global micro-batch.
inline ProgramOptions spread_programs(const Spread& spread, const ModelConfig& model, int64_t rows,
                                      int64_t length, DType compute) {
  ProgramOptions options = tiny_programs(rows, length, compute);
  options.parallelism = parallelism_of(spread, model, length);
  options.batch = options.validation_batch = rows / options.parallelism.data_ranks();
  return options;
}

}  // namespace tessera
