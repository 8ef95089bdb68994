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
      {.name = "histogram_freq",
       .field = &RunConfig::histogram_freq,
       .help =
           "steps between histograms of weights and gradients, by parameter, and their norms, by "
           "layer, for tensorboard_dir (use_wandb: norms)",
       .minimum = 1,
       .unset = "off",
       .on_resume = kFree},
      {.name = "memory_chart",
       .field = &RunConfig::memory_chart,
       .help = "a page (.html) that shows what lies in memory when, by kind and layer, with op and "
               "shape under the pointer",
       .scopes = in(OptionScope::kPlan)},
  };
}

}  // namespace tessera::option_groups
