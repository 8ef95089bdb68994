#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// A contiguous range of bytes that one or more values share over time: in the arena of its tier, or
// external (a state slot, which outlives the program).
struct Storage {
  int64_t bytes = 0;
  bool external = false;
  std::string external_name;            // slot
  MemoryTier tier = MemoryTier::kNear;  // of the arena; of a slot if it is updated
  int32_t first = 0, last = 0;          // nodes between which it is live, for arena storages
  int64_t arena_offset = -1;
  int32_t workspace_of = -1;  // node whose kernel uses it as scratch, or -1
};

// Where a value lies.
struct Place {
  int32_t storage = -1;
  int64_t offset = 0;  // bytes from the storage's begin
};

enum class InstructionKind { kLaunch, kWait, kCopy, kFill };

// One thing to do, in order. kLaunch runs node `node` on the compute lane, or begins it on another,
// behind all that compute has done so far: then kWait is where it must be done. kCopy moves `bytes`
// from `source` to `target`; kFill zeroes `bytes` at `target`.
struct Instruction {
  InstructionKind kind = InstructionKind::kLaunch;
  int32_t node = -1;
  Place source, target;
  int64_t bytes = 0;
  Lane lane = Lane::kCompute;  // of a launch
};

struct PlanOptions {
  // Switches for tests: to turn one off costs memory or copies and changes no result.
  bool views = true;
  bool placement = true;
  bool in_place = true;
  bool lodging = true;
  // Copies between the memory tiers run on a lane of their own, as a device's do. On a host they
  // are the work of the threads that compute.
  bool copies_beside = false;
};

// The program of one rank with every buffer's place known before anything runs.
struct Plan {
  std::vector<Place> places;   // by value
  std::vector<Place> outputs;  // by output of the graph, after the run
  std::vector<Storage> storages;
  std::vector<Instruction> instructions;
  std::vector<int32_t> workspaces;  // storage of each node's scratch, -1 if none
  int64_t arena_bytes = 0;          // what an executor allocates, exactly
  int64_t far_arena_bytes = 0;      // the same of the far tier
  int64_t live_peak_bytes = 0;      // largest sum of live near storages: no layout can be smaller
  int32_t peak_node = -1;
  int64_t copies = 0, copy_bytes = 0, fills = 0, fill_bytes = 0, in_place = 0, views = 0;
  std::vector<std::string> copy_reasons;  // "input is external (layers.3)"
  // Of values in slots that wait for their content, of all times together.
  int64_t lodged_bytes = 0;
  // What planning took: values compared, ways to storages walked, ranges of time looked into. In
  // proportion to the nodes, but for a logarithm.
  int64_t steps = 0;
};

constexpr int64_t kBufferAlignment = 64;
// What a storage takes of an arena.
int64_t buffer_room(int64_t bytes);

// Lays out a graph. `workspace_bytes[i]` is the scratch that node i's kernel asked for (empty:
// none).
//
// Two values share bytes only if they are never live together, except where a value dies at the
// very node that makes the other and the op declares that pair in-place. Views lie inside their
// operand, operands of a flatten inside its result, an updated state inside its slot; what cannot
// lie there is copied, with a reason. Values of different tiers share nothing. A slot that is
// updated and not read has room until its new content is made: other values lie there that are gone
// by then. Offsets are given by decreasing size, each the lowest that is free in the arena of its
// tier.
//
// An argument is there when the program begins, until its last reader is done: whoever runs the
// program copies it to its place first.
//
// What has another lane than compute runs beside what follows it, until the first that reads a
// result of it: so long its operands and its scratch stay untouched, and in place of an operand
// nobody else reads or writes those bytes.
Plan make_plan(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
               const PlanOptions& options = {});

// Checks a plan without trusting how it was made, on values and byte ranges: nothing that is still
// to be read is overwritten, live storages do not overlap, everything lies inside its storage.
// Throws InternalError.
void verify_plan(const Graph& graph, const Plan& plan);

// Near bytes that are live at each of a program's nodes, and behind the last: `nodes` + 1 numbers.
std::vector<int64_t> live_bytes(const Plan& plan, int32_t nodes);

// What a storage is there for: the node that fills it first, the value that this makes (none: that
// node's scratch, or a copy), and the kind: "forward values", "workspace" and so on.
struct StorageUse {
  int32_t node = -1;
  Value value;
  std::string category;
};
std::vector<StorageUse> storage_uses(const Graph& graph, const Plan& plan);

// Near bytes live at the peak by kind, largest first: "forward activations", "workspace" and so on.
struct MemoryCategory {
  std::string name;
  int64_t bytes = 0;
};
std::vector<MemoryCategory> memory_at_peak(const Graph& graph, const Plan& plan);

// "peak 12.3 MiB at layers.3.mlp swiglu (forward)": arena, peak and copies in a few lines.
std::string describe(const Graph& graph, const Plan& plan);
// Every instruction with its places; equal programs print equally.
std::string to_string(const Graph& graph, const Plan& plan);

}  // namespace tessera
