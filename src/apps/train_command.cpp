#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>

#include "apps/ahead_of_time.h"
#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/flight.h"
#include "apps/job_connection.h"
#include "apps/named_models.h"
#include "apps/run_device.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "base/thread_stacks.h"
#include "options/model_options.h"
#include "options/option_listing.h"
#include "planning/job_plan.h"
#include "planning/plan_report.h"
#include "programs/parallelism.h"
#include "programs/program_options.h"
#include "train/first_run_defaults.h"
#include "train/training_data.h"

namespace tessera {
namespace {

constexpr const char* kTrainHelp = R"(Usage: tessera train [OPTIONS]

Trains a model, or evaluates it once with --eval_only. Ctrl-C, SIGTERM and SIGUSR1 finish the step, save a
checkpoint and exit with status 143; Ctrl-C once more ends it at once. On many processes: tessera run --nproc_per_node 4 train ... (see tessera run --help).

Examples
  tessera train --dataset own.txt --checkpoint_dir ckpt      tokenizer, model and rates are chosen for the text
  tessera train --model_name llama3.2_1b --dataset corpus/ --tokenizer tokenizer.json --checkpoint_dir ckpt
  tessera train ... --checkpoint_dir ckpt --resume_from_checkpoint ckpt    continue where the last run stopped
  tessera train ... --resume_from_checkpoint ckpt --eval_only              loss and perplexity of held-out text
  tessera train --config run.toml --lr 1e-4                                options from a file; those beside it win
  tessera train --model_name gpt2 --lr 6e-4 --print_config > run.toml      such a file of all options, with origins

Options
)";

constexpr const char* kPlanHelp = R"(Usage: tessera plan [OPTIONS of train]

Prints parameters, memory by category to the byte, where it peaks, the arithmetic of a step and what it sends,
without allocating or running anything, for any device: --cpu_isa and --threads, or --device_type. With --memory
BYTES (of a rank) and --host_memory BYTES (of a host, for what is offloaded) it says whether the run fits, status 1 if
not, which changes make it fit or make use of what is left, and what they cost; without --memory so of the GPU that is
planned for. Of a CPU it then says whether the ranks of a host would fit on this machine: the status is 0 all the same,
as the run may be for another.

Examples
  tessera plan --model_name llama2_7b --train_batch_size 1 --max_context_width 4096
  tessera plan --model_name llama3.1_8b --world 8 --max_context_width 8192 --device_type cuda --target h200     without a GPU
  tessera plan --model_name llama2_70b --world 64 --ranks_per_host 2 --cpu_isa amx --threads 32 --memory 256GiB
  tessera plan --model_name llama2_7b --world 8 --device_type xla --target h100     what XLA makes of it, without a GPU

Options
)";

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

// After a restart by the agent a run goes on with its own checkpoints.
FirstRunPlace place_of(const RunConfig& config) {
  const std::optional<JobMember> member = job_member_from_environment();
  const int64_t world = member ? member->world_size : 1;
  const bool restarted = member && member->attempt > 0;
  return {std::max<int64_t>(1, world / config.tensor_parallel_degree),
          config.resume_from_checkpoint.empty() && restarted ? config.checkpoint_dir
                                                             : config.resume_from_checkpoint};
}

// The names stay what they are, in the listing too.
int print_config(ParsedOptions parsed) {
  const RunConfig given = parsed.config;
  fetch_named_configuration(parsed);
  ModelConfig model = resolve_model(parsed);
  for (auto field : {&RunConfig::hf_pretrained_model_name_or_dir, &RunConfig::pretrained_model_name,
                     &RunConfig::model_config})
    parsed.config.*field = given.*field;
  return print(option_listing(parsed, model));
}

// At its default nothing is saved by it. A file that lists all options holds that, too; who writes
// it out means any loss.
void take_record(ParsedOptions& parsed) {
  const auto given = parsed.given.find("best_val_loss");
  if (given != parsed.given.end() && given->second == "command line" &&
      parsed.config.best_val_loss == RunConfig().best_val_loss)
    parsed.config.best_val_loss = std::numeric_limits<double>::infinity();
}

// Who only measures measures all of it, unless told otherwise.
void take_whole_validation(ParsedOptions& parsed) {
  if (parsed.config.eval_only && !parsed.is_given("validation_batches"))
    parsed.config.validation_batches = std::numeric_limits<int64_t>::max();
}

// The default is a data set of the hub, which nobody means who has own data to validate on.
void require_training_data(const ParsedOptions& parsed) {
  const RunConfig& c = parsed.config;
  if (c.test_dir.empty() || !c.training_dir.empty() || parsed.is_given("dataset")) return;
  if (!c.dataset_mix.empty() || c.use_synthetic_data || c.eval_only) return;
  throw UsageError(cat("--test_dir ", c.test_dir,
                       " is validation data, and nothing says what to train on: give "
                       "--training_dir or --dataset (the default would be '",
                       c.dataset, "'), or --eval_only 1"));
}

}  // namespace

int train_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kTrain);
  if (parsed.help) return print_help(parsed, kTrainHelp);
  choose_for_text(parsed, place_of(parsed.config));
  take_vocabulary(parsed);
  if (parsed.config.print_config) return print_config(parsed);
  require_training_data(parsed);
  take_record(parsed);
  take_whole_validation(parsed);
  ::signal(SIGPIPE, SIG_IGN);  // nobody reads the log any more: the run goes on
  Flight flight;               // before the connection, of whose calls it hears
  JobConnection job = join_job(parsed.config);
  ShowsStack shows("main");
  flight = open_flight_recorder(parsed.config, job);
  ModelConfig model;
  RunDevice opened;
  try {
    fetch_named_models(parsed, job);
    model = resolve_model(parsed);
    fetch_named_tokenizer(parsed, job);
    choose_device(parsed);
    if (!job.member || job.member->rank == 0) log_messages(parsed);  // all ranks have the same
    opened = open_device(parsed.config, true, job);
  } catch (const std::exception& error) {
    end_flight(flight, RingEnd::kFailed, error.what());
    if (job.channels.control) job.channels.control->report_failure(error.what());
    throw;
  }
  opened.device.flight = flight.get();
  TrainingRun run(parsed.config, model, opened.device);
  try {
    RunEnd end = run.run();
    if (std::string loss = lost_log_lines(); !loss.empty()) {
      // Not by the stream: where this cannot be written either, the run has still done its work.
      const std::string text = cat("tessera: of the end of the log ", loss, "\n");
      (void)!::write(STDOUT_FILENO, text.data(), text.size());
    }
    end_flight(flight, end == RunEnd::kInterrupted ? RingEnd::kInterrupted : RingEnd::kFinished);
    return end == RunEnd::kInterrupted ? kInterruptedStatus : kSuccessStatus;
  } catch (const std::exception& error) {
    end_flight(flight, RingEnd::kFailed, error.what());
    if (job.channels.control) {
      // While the run's memory is there: a call may still read it.
      job.channels.control->report_failure(error.what());
      job.channels.communicator->settle();
    }
    throw;
  }
}

int plan_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kPlan);
  if (parsed.help) return print_help(parsed, kPlanHelp);
  const RunConfig& config = parsed.config;
  check_target(config);
  const int64_t ranks = planned_world(config) / config.tensor_parallel_degree;
  choose_for_text(parsed, {std::max<int64_t>(1, ranks), config.resume_from_checkpoint});
  take_vocabulary(parsed);
  if (parsed.config.print_config) return print_config(parsed);
  fetch_named_configuration(parsed);
  ModelConfig model = resolve_model(parsed);
  choose_device(parsed);
  log_messages(parsed);
  const std::string warning =
      shard_group_warning(config, planned_world(config), config.ranks_per_host);
  if (!warning.empty()) TESSERA_WARN(warning);
  if (!config.eval_only && config.resume_from_checkpoint.empty())  // else that has the schedule
    for (const std::string& text : Schedule(schedule_options(config)).warnings())
      TESSERA_WARN(text);
  PlannedDevice device(parsed.config);
  const bool asks_this_machine = !memory_limits(config, device.target()).any();
  const int64_t reading =
      asks_this_machine && config.streaming == "on" ? reading_bytes_here(config) : 0;
  PlanReport report = plan_report(parsed.config, model, device.target(), "/", reading);
  std::fputs(report.text.c_str(), stdout);
  if (config.device_type == "xla" && config.target != "none")
    plan_ahead_of_time(config, model, device.target());
  return report.fits ? 0 : 1;
}

}  // namespace tessera
