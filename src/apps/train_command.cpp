#include <cstdio>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "apps/job_connection.h"
#include "train/model_options.h"
#include "train/option_listing.h"

namespace tessera {
namespace {

constexpr const char* kTrainHelp = R"(Usage: tessera train [OPTIONS]

Trains a model, or evaluates it once with --eval_only. Ctrl-C and SIGTERM finish the step, save a checkpoint
and exit with status 143. On many processes: tessera run --nproc_per_node 4 train ... (see tessera run --help).

Examples
  tessera train --model_name llama3.2_1b --dataset corpus/ --tokenizer tokenizer.json --checkpoint_dir ckpt
  tessera train ... --checkpoint_dir ckpt --resume_from_checkpoint ckpt    continue where the last run stopped
  tessera train ... --resume_from_checkpoint ckpt --eval_only              loss and perplexity of held-out text
  tessera train --config run.toml --lr 1e-4                                options from a file; those beside it win
  tessera train --model_name gpt2 --lr 6e-4 --print_config > run.toml      such a file of all options, with origins

Options
)";

constexpr const char* kPlanHelp = R"(Usage: tessera plan [OPTIONS of train]

Prints parameters, memory by category to the byte, where it peaks and the arithmetic of a step, without
allocating or running anything. With --memory BYTES it says whether the run fits, status 1 if not.

Examples
  tessera plan --model_name llama2_7b --train_batch_size 1 --max_context_width 4096
  tessera plan --model_name llama2_70b --memory 640GiB

Options
)";

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

int train_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kTrain);
  if (parsed.help) {
    std::printf("%s%s", kTrainHelp, option_help(OptionScope::kTrain).c_str());
    return 0;
  }
  ModelConfig model = resolve_model(parsed);
  if (parsed.config.print_config) return print(option_listing(parsed, model));
  log_messages(parsed);
  JobConnection job = join_job(parsed.config);
  auto backend = open_cpu(parsed.config, job);
  TrainingRun run(parsed.config, model, device_of(*backend, parsed.config, true, job));
  try {
    return run.run() == RunEnd::kInterrupted ? 143 : 0;
  } catch (const std::exception& error) {
    if (job.communicator) {
      // While the run's memory is there: a call may still read it.
      job.communicator->report_failure(error.what());
      job.communicator->settle();
    }
    throw;
  }
}

int plan_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kPlan);
  if (parsed.help) {
    std::printf("%s%s", kPlanHelp, option_help(OptionScope::kPlan).c_str());
    return 0;
  }
  ModelConfig model = resolve_model(parsed);
  if (parsed.config.print_config) return print(option_listing(parsed, model));
  log_messages(parsed);
  RunConfig config = parsed.config;
  config.device_type = "cpu";  // whatever the run is meant for: there is one way to plan
  auto backend = open_cpu(config);
  PlanReport report = plan_report(config, model, device_of(*backend, config, false).compile);
  std::fputs(report.text.c_str(), stdout);
  return report.fits ? 0 : 1;
}

}  // namespace tessera
