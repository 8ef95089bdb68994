#pragma once
#include <optional>
#include <string>

#include "comm/slurm_step.h"

namespace tessera {

// Who this process is in its job, and how it finds the others. `tessera run` passes it to its
// workers in environment variables; the names in brackets are those of torchrun where it has one.
struct JobMember {
  int rank = 0;                              // [RANK]
  int world_size = 1;                        // [WORLD_SIZE]
  int local_rank = 0;                        // [LOCAL_RANK] on its host
  int local_world_size = 1;                  // [LOCAL_WORLD_SIZE] where unset, LOCAL_RANK + 1
  std::string master_address = "127.0.0.1";  // [MASTER_ADDR] host of the store
  int master_port = 0;                       // [MASTER_PORT]
  // Where rank 0 serves the store: at the first free one of so many ports from master_port on. The
  // agent of torchrun has MASTER_PORT for itself if TORCHELASTIC_USE_AGENT_STORE is True: then
  // these are the 16 ports behind it.
  int master_ports = 1;
  // Secret of the job: peers without it are refused. Empty only on one host, whose store is then
  // served to that host. [TESSERA_JOB_TOKEN]
  std::string token;
  // Ranks with equal values share memory. Default: the machine's boot id and the device number of
  // /dev/shm, since containers of one machine may have one each. [TESSERA_HOST_ID]
  std::string host_id;
  // Identity of the job, the same over its restarts: 32 hexadecimal digits; empty without an agent.
  // [TESSERA_JOB_ID]
  std::string id;
  // Number of restarts so far: ranks of different attempts never meet. [TESSERA_ATTEMPT,
  // TORCHELASTIC_RESTART_COUNT]
  int attempt = 0;
  // The store is served by the agent and not by rank 0. [TESSERA_AGENT_STORE]
  bool agent_store = false;
  // srun started this process as one of several tasks, each of which is a rank. What takes time to
  // find out is then open: the token (slurm_token.h), and where the first node is reached if
  // master_address is its name (reach_slurm_node()).
  std::optional<SlurmStep> slurm;
  // Network interface for traffic between hosts; empty: the one that leads to the master.
  // [TESSERA_INTERFACE, or GLOO_SOCKET_IFNAME where the master is on another host]
  std::string interface;
};

// Most ranks of a job.
constexpr int kMaxWorldSize = 1 << 20;

// Reads the variables. Where neither RANK nor WORLD_SIZE is set, one of several tasks of srun is a
// rank of its step, with rank 0 on the first node (MASTER_ADDR and MASTER_PORT, if set, say where
// else to meet); any other process is on its own: no value. With more than one rank LOCAL_RANK,
// MASTER_ADDR and MASTER_PORT must be set, and TESSERA_JOB_TOKEN unless MASTER_ADDR is an address
// for this host alone. UsageError that names the variable which is missing or out of range, and
// that of slurm_step().
std::optional<JobMember> job_member_from_environment();

// For a process that is a whole job: UsageError if it is one of several tasks of srun or processes
// of mpirun, since each of them would do the same.
void require_no_other_task();

// For a process that is on its own: which tasks or nodes its Slurm job has that will do nothing; ""
// where there are none, or where srun started it, alone on purpose.
std::string idle_part_of_slurm_job();

}  // namespace tessera
