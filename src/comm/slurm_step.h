#pragma once
#include <functional>
#include <optional>
#include <string>

namespace tessera {

// The value of a variable, null where it is not set.
using Environment = std::function<const char*(const char* name)>;

// What srun tells a task of its place in its step. The names in brackets are those
// of the variables.
struct SlurmStep {
  std::string cluster;      // [SLURM_CLUSTER_NAME] empty where unset
  std::string job, step;    // [SLURM_JOB_ID, SLURM_STEP_ID] digits
  int restarts = 0;         // [SLURM_RESTART_COUNT] how often the job was requeued
  int tasks = 1, task = 0;  // [SLURM_STEP_NUM_TASKS, SLURM_PROCID]
  int nodes = 1, node = 0;  // [SLURM_STEP_NUM_NODES, SLURM_NODEID]
  int local_tasks = 1;      // [SLURM_STEP_TASKS_PER_NODE] tasks on this node
  int local_task = 0;       // [SLURM_LOCALID]
  int cores = 0;  // [SLURM_CPUS_PER_TASK] of each task; 0: those of the node are not dealt out
  std::string first_node;  // of [SLURM_STEP_NODELIST], else of [SLURM_JOB_NODELIST]
  // What tells this step from one with the same numbers of another time: where its srun listens.
  std::string launcher;  // [SLURM_LAUNCH_NODE_IPADDR, SLURM_SRUN_COMM_PORT]

  // "17.0" in messages.
  std::string name() const;
  // 32 hexadecimal digits, the same over requeues of the job.
  std::string identity() const;
  // Where the step looks for a free port: this one and the 15 behind it. Steps of one job, and jobs
  // that follow each other, have different ones.
  int first_port() const;
  static constexpr int kPorts = 16;
  // A token of this step and this start alone, from a secret that many jobs may share.
  std::string token_from(const std::string& secret) const;
  // The file, in the directory in which the tasks run, through which task 0 hands out a token.
  std::string token_file() const;
};

// The number that a variable of another program holds, which may mean something else by it: 0 where
// it is none.
int number_or_zero(const std::string& text);

// No value for a process that srun has not started, nor for what somebody types into a shell that
// it has (srun --pty). SLURM_NTASKS does not tell: it is what a batch script may start. For one of
// several tasks UsageError that names a variable which is missing or contradicts another: it must
// not take itself for the whole job.
std::optional<SlurmStep> slurm_step(const Environment& environment);

// The name of a node, if that resolves on this host, else the address under which Slurm's
// controller knows it (`scontrol show node`), with a line of the log that says so. UserError where
// there is neither.
std::string reach_slurm_node(const std::string& node);

}  // namespace tessera
