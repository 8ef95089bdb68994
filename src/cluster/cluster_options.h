#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_option.h"

namespace tessera {

// What a job needs of a cluster: what `tessera slurm` and `tessera k8s` are told.
struct ClusterOptions {
  std::string job_name = "tessera";
  int nodes = 1;
  int nproc_per_node = 1;
  int gpus_per_node = 0;
  std::optional<int> efa_per_node;  // default: what the instance type has
  std::optional<int> cpus;          // of a node; of a task where a task is a rank
  std::string instance_type;        // of AWS: p4d.24xlarge
  std::string image;                // of a container; empty: none
  int max_restarts = 0;
  std::string file;  // to write; empty: standard output

  // Slurm.
  std::string launcher = "run";  // "run": an agent a node; "srun": a task a rank
  std::string time, partition, account, qos;
  bool exclusive = false;
  std::string log = "%x_%j.out";
  std::vector<std::string> container_mounts;
  bool container_mount_home = false;
  bool requeue = true;
  int save_margin = 120;             // seconds
  std::string auto_resume = "auto";  // "auto", "on", "off"
  std::vector<std::string> sbatch;   // further options of sbatch, as they are

  // Kubernetes.
  std::string kind = "job";
  std::string name_space;
  std::string memory, shm_size = "16Gi";  // quantities of Kubernetes
  std::string claim, claim_size, storage_class, mount = "/checkpoints";
  std::string secret;  // default: the job's name and "-token"
  std::string pull_policy = "IfNotPresent";
  int grace = 120;  // seconds
  bool elastic = false;
  std::optional<int> min_nodes;  // of an elastic job; default: nodes
  std::string etcd_image;
  std::string runtime = "torch-distributed";

  std::vector<std::string> command;  // the words of a worker: `train --...`
  bool help = false;
};

enum class ClusterSystem { kSlurm, kKubernetes };

// Reads the words behind `tessera slurm render` and the like. The first word that is no option, or
// what follows `--`, is the worker's command. UsageError for what is unknown, out of range,
// contradictory, or not of this system.
ClusterOptions parse_cluster_options(std::span<const std::string> words, ClusterSystem system);

// The options of a system.
std::vector<CommandOption<ClusterOptions>> cluster_options(ClusterSystem system);

}  // namespace tessera
