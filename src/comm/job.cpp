#include "comm/job.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

constexpr int kPortsBesideTorchrun = 16;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

[[noreturn]] void throw_missing(const char* name) {
  throw UsageError(cat("environment variable ", name,
                       " is missing: a rank of a job needs RANK, WORLD_SIZE, LOCAL_RANK, "
                       "MASTER_ADDR and MASTER_PORT. Start it with `tessera run`, or set them; a "
                       "process on its own has neither RANK nor WORLD_SIZE"));
}

std::optional<int> number(const char* name, int lowest, int highest) {
  auto text = variable(name);
  if (!text) return std::nullopt;
  const auto value = parse_number<int>(*text);
  if (!value || *value < lowest || *value > highest) {
    throw UsageError(cat("environment variable ", name, " must be a number from ", lowest, " to ",
                         highest, ": it is '", *text, "'"));
  }
  return value;
}

int required(const char* name, int lowest, int highest) {
  auto value = number(name, lowest, highest);
  if (!value) throw_missing(name);
  return *value;
}

std::string identity(const char* name) {
  std::string text = variable(name).value_or("");
  bool good = text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!text.empty() && !good) {
    throw UsageError(cat("environment variable ", name,
                         " must be 32 lower-case hexadecimal digits: it is '", text, "'"));
  }
  return text;
}

std::string default_host_id() {
  std::string boot(trim(read_file("/proc/sys/kernel/random/boot_id")));
  struct stat shm {};
  bool there = ::stat("/dev/shm", &shm) == 0;
  return cat(boot, "-", there ? shm.st_dev : 0);
}

// Whoever reaches the store's port could join: without a secret that must be this host alone.
void check_token(const JobMember& job) {
  if (job.world_size == 1 || !job.token.empty()) return;
  bool alone = false;
  try {
    alone = job.interface.empty() && is_loopback(job.master_address);
  } catch (const CommError&) {
    // A name that is not known here: not this host.
  }
  if (alone) return;
  throw UsageError(
      cat("environment variable TESSERA_JOB_TOKEN is missing: without it any host that "
          "reaches ",
          to_string(Endpoint{job.master_address, job.master_port}),
          " could join the job. Give all ranks the same secret, for example `export "
          "TESSERA_JOB_TOKEN=$(openssl rand -hex 32)` before they are started; on one "
          "host MASTER_ADDR=127.0.0.1 does without"));
}

// torchrun's agent serves a store of its own at MASTER_PORT, which speaks another protocol. Jobs
// beside each other may look at the same ports: so their tokens differ.
void move_beside_torchrun(JobMember& job) {
  std::string words =
      cat("beside torchrun ", job.master_port, " ", variable("TORCHELASTIC_RUN_ID").value_or(""));
  job.token = hex(hmac_sha256(job.token, words));
  job.master_ports = kPortsBesideTorchrun;
  job.master_port = std::min(job.master_port + 1, 65535 - kPortsBesideTorchrun + 1);
}

int foreign_number(const char* name) { return number_or_zero(variable(name).value_or("")); }

// Gloo's variable, which jobs of torchrun set, may name several. Between ranks of one host none is
// needed, and that host may not have it.
std::string interface_to(const std::string& master) {
  if (auto own = variable("TESSERA_INTERFACE")) return *own;
  auto of_gloo = variable("GLOO_SOCKET_IFNAME");
  if (!of_gloo) return "";
  try {
    if (is_loopback(master)) return "";
  } catch (const CommError&) {
    // A name that is not known here: not this host.
  }
  return of_gloo->substr(0, of_gloo->find(','));
}

JobMember member_of(const SlurmStep& step) {
  JobMember job;
  job.slurm = step;
  job.world_size = step.tasks;
  job.rank = step.task;
  job.local_world_size = step.local_tasks;
  job.local_rank = step.local_task;
  job.master_address =
      variable("MASTER_ADDR").value_or(step.nodes > 1 ? step.first_node : job.master_address);
  auto port = number("MASTER_PORT", 1, 65535);
  job.master_port = port.value_or(step.first_port());
  job.master_ports = port ? 1 : SlurmStep::kPorts;
  job.host_id = variable("TESSERA_HOST_ID").value_or(default_host_id());
  job.id = step.identity();
  job.attempt = step.restarts;
  job.interface = interface_to(job.master_address);
  return job;
}

}  // namespace

void require_no_other_task() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (int processes = foreign_number(name); processes > 1)
      throw UsageError(cat(
          "mpirun started this process as one of ", processes, " (", name,
          "), and each would do the whole job. Start one agent a node, which starts the ranks: "
          "mpirun --npernode 1 tessera run --nnodes NODES --nproc_per_node RANKS --rdzv_endpoint "
          "HOST:29400 train ... (docs/launch.md). Jobs that are meant to be apart: env -u ",
          name, " tessera ..."));
  }
  int tasks = foreign_number("SLURM_STEP_NUM_TASKS"), task = foreign_number("SLURM_PROCID");
  if (tasks <= 1 && task <= 0) return;
  throw UsageError(cat(
      "srun started this process as task ", task, tasks > 1 ? cat(" of ", tasks) : "",
      ", and each task would do the whole job. Start one agent a node, which finds the others by "
      "itself: srun --ntasks-per-node=1 tessera run --nproc_per_node RANKS train ... "
      "(docs/slurm.md), or a single task: srun --nodes=1 --ntasks=1. Jobs that are meant to be "
      "apart: env -u SLURM_STEP_NUM_TASKS -u SLURM_PROCID tessera ..."));
}

std::string idle_part_of_slurm_job() {
  if (!variable("SLURM_JOB_ID") || variable("SLURM_STEP_ID")) return "";
  int nodes = foreign_number("SLURM_JOB_NUM_NODES"), tasks = foreign_number("SLURM_NTASKS");
  if (nodes > 1) return cat(nodes, " nodes");
  return tasks > 1 ? cat(tasks, " tasks") : "";
}

std::optional<JobMember> job_member_from_environment() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) {
    auto step = slurm_step([](const char* name) { return std::getenv(name); });
    return step ? std::optional(member_of(*step)) : std::nullopt;
  }
  JobMember job;
  job.world_size = required("WORLD_SIZE", 1, kMaxWorldSize);
  job.rank = required("RANK", 0, job.world_size - 1);
  bool alone = job.world_size == 1;
  auto local_world = number("LOCAL_WORLD_SIZE", 1, job.world_size);
  auto local_rank = number("LOCAL_RANK", 0, local_world.value_or(job.world_size) - 1);
  if (!local_rank && !alone) throw_missing("LOCAL_RANK");
  job.local_rank = local_rank.value_or(0);
  job.local_world_size = local_world.value_or(job.local_rank + 1);
  auto address = variable("MASTER_ADDR");
  if (!address && !alone) throw_missing("MASTER_ADDR");
  job.master_address = address.value_or(job.master_address);
  auto port = number("MASTER_PORT", 1, 65535);
  if (!port && !alone) throw_missing("MASTER_PORT");
  job.master_port = port.value_or(0);
  job.token = variable("TESSERA_JOB_TOKEN").value_or("");
  job.host_id = variable("TESSERA_HOST_ID").value_or(default_host_id());
  job.id = identity("TESSERA_JOB_ID");
  auto restarts = number("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000'000);
  job.attempt = number("TESSERA_ATTEMPT", 0, 1'000'000'000).value_or(restarts.value_or(0));
  job.agent_store = number("TESSERA_AGENT_STORE", 0, 1).value_or(0) == 1;
  job.interface = interface_to(job.master_address);
  check_token(job);
  bool torchrun = lower(variable("TORCHELASTIC_USE_AGENT_STORE").value_or("")) == "true";
  if (torchrun && !alone && !job.agent_store) move_beside_torchrun(job);
  return job;
}

}  // namespace tessera
