#pragma once
#include <functional>
#include <memory>

#include "models/model_config.h"
#include "planning/device_sheet.h"
#include "programs/session.h"
#include "programs/step_costs.h"

namespace tessera {

// The device that a job is planned for; it need not be one of this machine.
struct PlanTarget {
  Backend* backend = nullptr;               // need not be able to run what it compiles
  std::string description = "this device";  // "a CPU with amx, 16 threads a rank"
  // Whether the kernels' workspaces are in the plan, and it is to the byte what training allocates,
  // but for what `without_libraries` says.
  bool exact = true;
  // Where a library takes workspaces of which only a device knows the size, `backend` plans with
  // the most that it may take, and this for the same device without the library.
  Backend* without_libraries = nullptr;
  std::optional<DeviceSheet> sheet;
  // Of a GPU: the kernels of a session that `backend` compiled, for reports; lines of text.
  std::function<std::string(const Session&)> kernels_text;
  double peak_flops = 1e12;  // of matrix products, nominal
};

// Memory that a job may use; nothing: no limit.
struct MemoryLimits {
  std::optional<int64_t> near;  // of a rank: --memory
  std::optional<int64_t> host;  // of all ranks of a host together, for the far tier: --host_memory
  std::optional<int64_t> both;  // of a rank, where the two tiers are one memory
  // Of a rank's device, what lies there beside the plan included; where --memory is not given.
  std::optional<DeviceSheet> device;
  bool any() const { return near || host || both || device; }
};
MemoryLimits memory_limits(const RunConfig& config, const PlanTarget& target);

// What a job takes, in numbers.
struct JobPlan {
  Parallelism parallelism;
  Session::Memory memory;  // of one rank
  int64_t ranks_on_host = 1;
  double tokens = 0;   // of a step, of all ranks
  StepCosts costs;     // of one rank
  int64_t groups = 0;  // of ranks that exchange with each other, to which a rank belongs
  int64_t slots = 0;   // of its state
  // Of a rank, for what checkpoints are written from, where --async_checkpoint on must have it: in
  // host memory, and counted with what is near where that is, not on a GPU.
  int64_t staging = 0;

  int64_t near() const { return checked_add(memory.near(), staging); }
  // On a device of which there is a data sheet.
  MemoryBeside beside() const { return memory_beside(groups, slots); }
  int64_t far_on_host() const { return memory.far() * ranks_on_host; }
  double tokens_a_rank() const { return tokens / parallelism.mesh.world_size(); }
  bool fits(const MemoryLimits& limits) const;
};

// Whether a job writes checkpoints.
bool saves_checkpoints(const RunConfig& config);

// World of a planned job: --world, or what --shard_degree and --tensor_parallel_degree need.
int64_t planned_world(const RunConfig& config);

// The programs of a job as they run on `target`, not allocated. UserError where the options do not
// go together with each other or with the model. `observer` sees the passes.
std::unique_ptr<Session> plan_session(const RunConfig& config, const ModelConfig& model,
                                      const PlanTarget& target, PassObserver observer = {});
// The options of its programs.
ProgramOptions planned_options(const RunConfig& config, const ModelConfig& model);
JobPlan job_plan(const RunConfig& config, const Session& session);

// What the plan's device does in a second, of options and target.
DeviceRates device_rates(const RunConfig& config, const PlanTarget& target);

}  // namespace tessera
