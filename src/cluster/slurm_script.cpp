#include "cluster/slurm_script.h"

#include <vector>

#include "base/text.h"
#include "cluster/instance_types.h"
#include "cluster/shell_text.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

std::string head(const ClusterOptions& o) {
  std::string text = "#!/bin/bash\n# Written by `tessera slurm render`. Submit it with sbatch.\n";
  auto add = [&](const std::string& option) { text += cat("#SBATCH ", option, "\n"); };
  add(cat("--job-name=", o.job_name));
  add(cat("--nodes=", o.nodes));
  add(cat("--ntasks-per-node=", o.launcher == "run" ? 1 : o.nproc_per_node));
  if (o.cpus) add(cat("--cpus-per-task=", *o.cpus));
  if (o.gpus_per_node > 0) add(cat("--gpus-per-node=", o.gpus_per_node));
  if (o.exclusive) add("--exclusive");
  if (!o.partition.empty()) add(cat("--partition=", o.partition));
  if (!o.account.empty()) add(cat("--account=", o.account));
  if (!o.qos.empty()) add(cat("--qos=", o.qos));
  if (o.nodes > 1) add("--wait-all-nodes=1");
  if (o.log.find('/') != std::string::npos)
    text += "# The directory of the log must be there before the job starts.\n";
  add(cat("--output=", o.log));
  add("--open-mode=append");
  text += cat("# ", o.save_margin, " s before the time limit Slurm sends SIGUSR1 to this script",
              o.requeue ? ", which saves and comes back.\n" : ", which saves and ends.\n");
  if (!o.time.empty()) add(cat("--time=", o.time));
  add(cat("--signal=B:USR1@", o.save_margin));
  add(o.requeue ? "--requeue" : "--no-requeue");
  for (const std::string& option : o.sbatch) add(option);
  return text;
}

std::string variables(const ClusterOptions& o) {
  std::string text = R"(
# The processes of the job recognise each other by this secret. Variables of a process can be read by
# its user and by root only.
export TESSERA_JOB_TOKEN="${TESSERA_JOB_TOKEN:-$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')}"
)";
  if (!o.instance_type.empty()) {
    auto network = network_variables(find_instance_type(o.instance_type));
    if (!network.empty())
      text += cat("\n# The network of ", o.instance_type, ". What is set already wins.\n");
    for (const auto& [name, value] : network)
      text += cat("export ", name, "=\"${", name, ":-", value, "}\"\n");
  } else if (o.gpus_per_node > 0) {
    text += R"(
# The Elastic Fabric Adapter, where the node has one. What is set already wins.
if ls /sys/class/infiniband 2>/dev/null | grep -q '^\(rdmap\|efa\)'; then
  export FI_PROVIDER="${FI_PROVIDER:-efa}"
fi
)";
  }
  return text;
}

std::string srun_line(const ClusterOptions& o, const std::string& program) {
  Words srun{"srun", "--kill-on-bad-exit=1"};
  // Of newer versions srun does not take over the cores of a task by itself, and binds to one.
  srun.push_back(o.cpus ? cat("--cpus-per-task=", *o.cpus) : "--cpu-bind=none");
  std::string line = shell_words(srun);
  if (o.auto_resume == "on") line += " --auto-resume=1";
  if (o.auto_resume == "auto") line += " $auto_resume";
  if (!o.image.empty()) {
    Words container{cat("--container-image=", o.image)};
    if (!o.container_mounts.empty())
      container.push_back(cat("--container-mounts=", join(o.container_mounts, ",")));
    if (o.container_mount_home) container.push_back("--container-mount-home");
    line += cat(" \\\n    ", shell_words(container));
  }
  Words rank{program};
  if (o.launcher == "run") {
    rank.insert(rank.end(), {"run", "--nproc_per_node", cat(o.nproc_per_node)});
    if (o.max_restarts > 0) rank.insert(rank.end(), {"--max_restarts", cat(o.max_restarts)});
  }
  line += cat(" \\\n    ", shell_words(rank), " \\\n    ", shell_words(o.command), " &\n");
  return line;
}

constexpr const char* kAutoResume = R"(
# SageMaker HyperPod replaces a broken node, and starts the step again.
auto_resume=
if [ -d /opt/sagemaker_cluster ]; then auto_resume=--auto-resume=1; fi
)";

constexpr const char* kTraps = R"(
# Ahead of the limit the ranks are asked to save: by scancel, since srun itself would kill them. The
# step may not have started yet.
asked=
ask_to_save() {
  asked=yes
  for second in 1 2 3 4 5 6 7 8 9 10; do
    scancel --signal=TERM "$SLURM_JOB_ID.0" && return
    sleep 1
  done
}
trap ask_to_save USR1
# scancel of the job: Slurm asks the ranks, and this script waits until they have saved.
trap : TERM

)";

constexpr const char* kWait = R"(step=$!
# A signal ends `wait`, not srun.
while kill -0 "$step" 2>/dev/null; do wait "$step"; done
wait "$step"
status=$?
echo "srun ended with status $status"
)";

constexpr const char* kRequeue = R"(
if [ -n "$asked" ] && [ "$status" -ne 0 ]; then
  # It goes on from the checkpoint that it has just written.
  scontrol requeue "$SLURM_JOB_ID"
fi
)";

}  // namespace

std::string slurm_script(const ClusterOptions& o, const std::string& program) {
  std::string text = head(o) + variables(o);
  if (o.auto_resume == "auto") text += kAutoResume;
  text += kTraps + srun_line(o, program) + kWait;
  if (o.requeue) text += kRequeue;
  return text + "exit \"$status\"\n";
}

}  // namespace tessera
