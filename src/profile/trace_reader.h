#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "profile/live_memory.h"

namespace tessera {

// Trace files as write_trace() and merge_traces() write them.

struct TraceEvent {
  // kOp: compute, copies and fills too. kBegin: an exchange is started. kWait: until it is done.
  // kExchange: it runs, beside the others.
  enum class Kind : uint8_t { kStep, kData, kOp, kBegin, kWait, kExchange };
  Kind kind = Kind::kOp;
  int64_t lane = 0;            // thread of the trace
  int64_t begin = 0, end = 0;  // nanoseconds; of rank 0's clock where the trace tells how
  int64_t step = -1;           // in which it began; -1: in none
  std::string op, phase, scope, program;
  int64_t layer = -1;
  double flops = 0, bytes = 0;  // of an exchange: bytes that the rank sends
  double light_seconds = 0;     // 0: not known
  std::string ranks, axes;      // who takes part in an exchange, also of a wait
  int64_t sequence = -1;        // of these ranks' exchanges in the trace, from 0
  double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
};

// Planned bytes that are live from a moment on, state excluded.
struct TraceMemory {
  int64_t at = 0, live = 0;
};

struct TracePeak {
  std::string program, at;
  int64_t bytes = 0;
  std::vector<LiveBuffer> live;
};

// What a trace tells of one rank and the steps of one cycle.
struct RankTrace {
  int64_t rank = 0, world_size = 1;
  std::string host, run;  // run: its identity; "" in traces of earlier versions
  int64_t first_step = 0;
  int64_t lost = 0;        // instructions for which there was no room
  double clock_error = 0;  // seconds by which its times may be off those of rank 0
  std::vector<TraceEvent> events;
  std::vector<TraceMemory> memory;
  std::vector<TracePeak> peaks;
  std::vector<LiveBuffer> state;
};

// UserError for a file that is no such trace, with the reason.
std::vector<RankTrace> read_trace(const ByteSource& file);

// Those of files, and of all traces of directories. UserError where there are none, or they are not
// of one run: another identity, other numbers of ranks, a rank twice.
std::vector<RankTrace> read_traces(std::span<const std::string> paths);

// The same as files, in the order of ranks.
std::vector<std::filesystem::path> trace_files(std::span<const std::string> paths);

}  // namespace tessera
