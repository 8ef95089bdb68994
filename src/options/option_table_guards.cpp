#include "options/option_table_groups.h"

// What keeps a run from being lost: docs/guards.md.
namespace tessera::option_groups {

std::vector<OptionRow> guards() {
  return {
      {.name = "first_step_timeout",
       .aliases = {"init_timeout_seconds"},
       .field = &RunConfig::first_step_timeout,
       .help = "watchdog: seconds within which the first step of a process must be done, data and "
               "all, else it ends with status 124 and says where it is",
       .minimum = 0.1,
       .unset = "off",
       .on_resume = kFree},
      {.name = "step_timeout",
       .aliases = {"train_timeout_seconds"},
       .field = &RunConfig::step_timeout,
       .help = "watchdog: the same of every later step; saving, validating and the time for which "
               "the process was stopped do not count",
       .minimum = 0.1,
       .unset = "off",
       .on_resume = kFree},
      {.name = "heartbeat_file",
       .field = &RunConfig::heartbeat_file,
       .help = "a file of one JSON object that rank 0 writes anew, at most once a second, when "
               "steps are done or the run does something else: for outside monitors",
       .on_resume = kFree},
      {.name = "straggler_interval",
       .field = &RunConfig::straggler_interval,
       .help = "steps after which ranks compare their times; 0: they do not",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "straggler_threshold",
       .field = &RunConfig::straggler_threshold,
       .help = "a rank that takes so many times as long as the median of the others, in computing, "
               "waiting for data or saving, is warned about",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "loss_spike_policy",
       .field = &RunConfig::loss_spike_policy,
       .help = "what is done about a step whose loss stands out: warn: say so; skip: its update is "
               "left out, as one that is not finite; rewind: back to the newest checkpoint, and "
               "the batches since then are left out",
       .values = {{.name = "none"}, {.name = "warn"}, {.name = "skip"}, {.name = "rewind"}},
       .on_resume = kWarned},
      {.name = "loss_spike_threshold",
       .aliases = {"sigma_factor"},
       .field = &RunConfig::loss_spike_threshold,
       .help = "standard deviations above the median of the steps before from which on a loss is a "
               "spike",
       .minimum = 0,
       .on_resume = kWarned},
      {.name = "loss_spike_window",
       .aliases = {"rolling_interval_length"},
       .field = &RunConfig::loss_spike_window,
       .help = "how many steps those are; before half of them are done nothing is a spike",
       .minimum = 4,
       .maximum = 4096,
       .on_resume = kWarned},
      {.name = "max_loss_spike_rewinds",
       .field = &RunConfig::max_loss_spike_rewinds,
       .help = "rewinds of a job, after which the next spike stops it",
       .minimum = 1,
       .on_resume = kFree},
      {.name = "inject",
       .field = &RunConfig::inject,
       .help = "faults that the run makes itself, for drills: kill, stall, slow, corrupt, drop or "
               "nan with rank and step, `kill@rank=1,step=5` (docs/guards.md)",
       .on_resume = kFree},
  };
}

}  // namespace tessera::option_groups
