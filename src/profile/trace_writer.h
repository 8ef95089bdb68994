#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "profile/clock_alignment.h"
#include "profile/instruction_text.h"
#include "profile/live_memory.h"
#include "profile/run_recorder.h"
#include "profile/speed_of_light.h"

namespace tessera {

// Times in nanoseconds of monotonic_nanoseconds().
struct ProfiledStep {
  int64_t number = 0;    // as in the progress line
  int64_t begin = 0;     // before it asked for data
  int64_t computes = 0;  // had its data
  int64_t end = 0;
};

// What a trace file tells of one rank.
struct TraceContent {
  int rank = 0, world_size = 1;
  std::string host, run;  // run: its identity
  std::span<const ProfiledProgram> programs;
  std::span<const ProfiledStep> steps;
  const RunRecorder* recorder = nullptr;
  SpeedOfLight light;
  std::vector<LiveBuffer> state;   // by category: "parameters", ...
  std::vector<ClockOffset> clock;  // at begin and end; none: one rank
};

// Writes it in the format of Chrome's traces, which Perfetto and others read: docs/profiling.md
// says what is where. UserError where the file cannot be written. A request to end does not end it:
// the run that calls it has a checkpoint to save.
void write_trace(const std::filesystem::path& path, const TraceContent& content);

}  // namespace tessera
