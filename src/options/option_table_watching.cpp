#include "options/option_table_groups.h"

// What looks at a run while it goes, and at its memory before.
namespace tessera::option_groups {

std::vector<OptionRow> watching() {
  return {
      {.name = "console",
       .field = &RunConfig::console,
       .help = "auto: on a terminal, lines at its foot that show how the run goes, in place of "
               "progress lines; plain: lines as in a file",
       .values = {{.name = "auto"}, {.name = "plain"}},
       .on_resume = kFree},
      {.name = "http_port",
       .field = &RunConfig::http_port,
       .help = "serve the run's state at this port, on the first rank of every host: /metrics for "
               "Prometheus, /healthz and /readyz for Kubernetes; 0: a free port, which the log "
               "names",
       .minimum = 0,
       .maximum = 65535,
       .unset = "off",
       .on_resume = kFree},
      {.name = "http_address",
       .field = &RunConfig::http_address,
       .help = "address in numbers at which http_port is served; 0.0.0.0: every one of the host, "
               "for probes and scrapes from elsewhere",
       .on_resume = kFree},
      {.name = "dashboard",
       .field = &RunConfig::dashboard,
       .help =
           "show the run on a page that keeps itself up to date, served at this port on rank 0: "
           "progress, curves, ranks, memory, last events; 0: a free port. The log has the "
           "address, with the token without which nothing is shown",
       .minimum = 0,
       .maximum = 65535,
       .unset = "off",
       .on_resume = kFree},
      {.name = "dashboard_address",
       .field = &RunConfig::dashboard_address,
       .help = "address in numbers at which dashboard is served; 0.0.0.0: every one of the host. "
               "The page is not encrypted",
       .on_resume = kFree},
      {.name = "histogram_freq",
       .field = &RunConfig::histogram_freq,
       .help =
           "steps between histograms of weights and gradients, by parameter, and their norms, by "
           "layer, for tensorboard_dir (use_wandb: norms)",
       .minimum = 1,
       .unset = "off",
       .on_resume = kFree},
      {.name = "flight_recorder_dir",
       .field = &RunConfig::flight_recorder_dir,
       .help = "where every rank keeps what it did last, for tessera postmortem: a directory that "
               "all hosts share shows all ranks on one page",
       .unset = "in the memory of each host: /dev/shm/tessera-flight-UID/JOB",
       .on_resume = kFree},
      {.name = "flight_recorder_size",
       .aliases = {"trace_buffer_size"},
       .field = &RunConfig::flight_recorder_size,
       .help = "events that each rank keeps, of 32 bytes; 0: none, and no report of a crash",
       .minimum = 0,
       .maximum = int64_t{1} << 24,
       .on_resume = kFree},
      {.name = "memory_chart",
       .field = &RunConfig::memory_chart,
       .help = "a page (.html) that shows what lies in memory when, by kind and layer, with op and "
               "shape under the pointer",
       .scopes = in(OptionScope::kPlan)},
  };
}

}  // namespace tessera::option_groups
