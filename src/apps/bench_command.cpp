#include <cstdio>
#include <numeric>

#include "apps/bench_ops.h"
#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "apps/named_models.h"
#include "base/clock.h"
#include "base/random.h"
#include "options/model_options.h"
#include "programs/step_costs.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera bench ops|step [OPTIONS of train]

bench ops   every kernel over the shapes of the model: time, bytes, FLOP and share of the speed of light, the larger
            of the time that its arithmetic takes at the machine's matrix or vector peak and its bytes at the
            machine's memory bandwidth, all measured at start, or what
            an op reached if that is more; what lies in caches may still be faster than memory.
bench step  whole training steps on random tokens; with --by_op time by op and phase.
With --document_mask 1 (ops and step) rows are documents of 256 tokens; the arithmetic of attention is counted as without.

Examples
  tessera bench ops --model_type llama_v2 --hidden_width 768 --num_heads 12 --train_batch_size 4 --max_context_width 1024
  tessera bench step --by_op --model_type llama_v2 --num_layers 4 --repeats 5

Options
)";

int bench_step(const RunConfig& config, const ModelConfig& model) {
  auto backend = open_cpu(config);
  Device device = device_of(*backend, config, true);
  Session session(build_programs(model_builder(model), program_options(config, {})), *backend);
  session.allocate();
  session.initialize(static_cast<uint64_t>(config.seed), backend->pool());
  session.set_decay(config.weight_decay, config.decay_all);
  auto tokens = static_cast<size_t>(config.train_batch_size * config.max_context_width);
  std::vector<int32_t> ids(tokens), targets(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    ids[i] = static_cast<int32_t>(random_below(1, 0, i, static_cast<uint64_t>(model.vocab_size)));
    targets[i] =
        static_cast<int32_t>(random_below(2, 0, i, static_cast<uint64_t>(model.vocab_size)));
  }
  std::vector<int64_t> row_keys(static_cast<size_t>(config.train_batch_size));
  std::iota(row_keys.begin(), row_keys.end(), 0);
  const std::vector<int32_t> starts =
      bench_document_starts(config.train_batch_size, config.max_context_width);
  std::vector<MicroBatch> batches(static_cast<size_t>(config.gradient_accumulation_steps),
                                  MicroBatch{ids, targets, row_keys, starts});
  session.step(batches, config.lr, config.grad_clip);  // warm-up
  OpTimer timer;
  NodeObserver observer = timer.observer();
  double best = 1e30, total = 0;
  for (int64_t i = 0; i < config.repeats; ++i) {
    double start = monotonic_seconds();
    session.step(batches, config.lr, config.grad_clip, config.by_op ? &observer : nullptr);
    double seconds = monotonic_seconds() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  double flops =
      program_flops(session.programs().accumulate_first) * static_cast<double>(batches.size());
  double per_step = static_cast<double>(tokens * batches.size());
  double peak = device.peak.flops_after(flops / best);
  std::printf(
      "%s: %lld steps, mean %.1f ms, best %.1f ms, %.0f tokens/s (best), %.1f GFLOP/s, %.1f%% of "
      "the matrix peak of %.1f GFLOP/s\n",
      device.description.c_str(), static_cast<long long>(config.repeats),
      total / static_cast<double>(config.repeats) * 1e3, best * 1e3, per_step / best,
      flops / best / 1e9, 100 * flops / best / peak, peak / 1e9);
  if (!config.by_op) return 0;
  SpeedOfLight light = measure_speed_of_light(*backend);
  double sum = 0;
  for (const OpTimer::Row& row : timer.rows()) {
    sum += row.seconds;
    auto launches = static_cast<double>(row.launches);
    light.reached(row.contracts, row.flops / launches, row.bytes / launches, row.seconds / launches,
                  compute_dtype(config));
  }
  std::printf("%-32s %-10s %6s %10s %7s %10s %9s %8s\n", "op", "phase", "calls", "ms/step", "share",
              "GFLOP/s", "GB/s", "% light");
  auto repeats = static_cast<double>(config.repeats);
  for (const OpTimer::Row& row : timer.rows()) {
    double ideal = light.seconds(row.contracts, row.flops, row.bytes, compute_dtype(config));
    std::printf("%-32s %-10s %6lld %10.3f %6.1f%% %10.1f %9.2f %7.1f%%\n", row.op.c_str(),
                std::string(name(row.phase)).c_str(),
                static_cast<long long>(row.launches / config.repeats), row.seconds / repeats * 1e3,
                100 * row.seconds / sum, row.flops / row.seconds / 1e9,
                row.bytes / row.seconds / 1e9, 100 * ideal / row.seconds);
  }
  return 0;
}

}  // namespace

int bench_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kBench);
  if (parsed.help) return print_help(parsed, kHelp);
  std::string what = parsed.words.size() == 1 ? parsed.words[0] : "";
  if (what != "ops" && what != "step")
    throw UsageError("bench takes one word, ops or step: tessera bench step --by_op");
  fetch_named_configuration(parsed);
  ModelConfig model = resolve_model(parsed);
  log_messages(parsed);
  if (parsed.config.device_type == "cuda" || parsed.config.device_type == "xla")
    throw UserError(cat("tessera bench measures the CPU's kernels, not those of --device_type ",
                        parsed.config.device_type, ": leave it out"));
  return what == "ops" ? bench_ops(parsed.config, model) : bench_step(parsed.config, model);
}

}  // namespace tessera
