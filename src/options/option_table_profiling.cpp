#include "options/option_table_groups.h"

// Recording what steps do, and looking at it.
namespace tessera::option_groups {

namespace {
constexpr OptionScopes kProfile = in(OptionScope::kProfile);
}  // namespace

std::vector<OptionRow> profiling() {
  return {
      {.name = "use_profiler",
       .field = &RunConfig::use_profiler,
       .help = "record what some steps do, and write a trace of every rank: docs/profiling.md",
       .on_resume = kFree},
      {.name = "profile_dir",
       .field = &RunConfig::profile_dir,
       .help = "where traces go",
       .on_resume = kFree},
      {.name = "profiler_wait",
       .field = &RunConfig::profiler_wait,
       .help = "steps of a cycle that are left alone",
       .minimum = 0,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "profiler_warmup",
       .field = &RunConfig::profiler_warmup,
       .help = "steps behind them that are recorded and thrown away",
       .minimum = 0,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "profiler_active",
       .field = &RunConfig::profiler_active,
       .help = "steps behind those that are kept: a trace",
       .minimum = 1,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "profiler_repeat",
       .field = &RunConfig::profiler_repeat,
       .help = "cycles, from the first step of a process on; 0: to its end",
       .minimum = 0,
       .maximum = kLargestCount,
       .on_resume = kFree},
      {.name = "use_nsight",
       .field = &RunConfig::use_nsight,
       .help = "start the CUDA profiler at step 10 on rank 0, for a run under nsys with "
               "--capture-range=cudaProfilerApi; NVTX ranges",
       .on_resume = kFree},
      {.name = "profile_nsys",
       .field = &RunConfig::profile_nsys,
       .help = "the same at step 3 on all ranks",
       .on_resume = kFree},
      {.name = "nsys_start_step",
       .field = &RunConfig::nsys_start_step,
       .help = "the same at this step on rank 0",
       .minimum = 0,
       .on_resume = kFree},
      {.name = "nsys_end_step",
       .field = &RunConfig::nsys_end_step,
       .help = "the first step behind the capture of nsys_start_step",
       .minimum = 0,
       .unset = "the end of the run",
       .on_resume = kFree},
      {.name = "rows_shown",
       .field = &RunConfig::rows_shown,
       .help = "profile report, diff: lines of a table of ops",
       .minimum = 1,
       .maximum = kLargestCount,
       .scopes = kProfile},
      {.name = "html_file",
       .field = &RunConfig::html_file,
       .help =
           "profile report: also a page with timeline, flame view and memory chart, which loads "
           "nothing",
       .scopes = kProfile},
      {.name = "trace_file",
       .field = &RunConfig::trace_file,
       .help = "profile merge: what it writes",
       .scopes = kProfile},
  };
}

}  // namespace tessera::option_groups
