#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/slurm_step.h"
#include "comm/tcp_socket.h"

namespace tessera {

enum class RendezvousBackend { kC10d, kStatic, kEtcd };

// Which streams of a worker: bit 0 its standard output, bit 1 its standard error. For all local
// ranks, or for some: torchrun's "3" and "0:1,1:3".
struct StreamChoice {
  int all = 0;
  std::map<int, int> by_local_rank;
  int of(int local_rank) const {
    auto at = by_local_rank.find(local_rank);
    return at == by_local_rank.end() ? all : at->second;
  }
  bool is_empty() const { return all == 0 && by_local_rank.empty(); }
};

// How etcd is spoken to, with torchrun's names in --rdzv_conf: protocol, cacert, cert, key; and
// user, password_file.
struct EtcdAccess {
  std::string protocol = "http";
  std::string cacert, cert, key;  // PEM files
  std::string user, password_file;
};

// What `tessera run` was told, with torchrun's names and meanings.
struct RunOptions {
  int nnodes = 1;     // at most
  int min_nodes = 1;  // at least
  int nproc_per_node = 1;
  std::optional<RendezvousBackend> rdzv_backend;
  std::optional<Endpoint> rdzv_endpoint;  // port 0 where none was given
  bool endpoint_has_port = false;
  std::vector<Endpoint> other_endpoints;  // of etcd
  EtcdAccess etcd;
  std::string rdzv_id;
  std::optional<int> node_rank;
  std::string master_addr;
  std::optional<int> master_port;
  std::string local_addr;
  bool standalone = false;
  double join_timeout = 600;       // seconds
  double last_call = 30;           // seconds for more than min_nodes to come
  double keep_alive_interval = 5;  // seconds between signs of life of a node
  int keep_alive_max_attempt = 3;  // so many missed: the node is lost
  std::optional<bool> is_host;
  int max_restarts = 0;
  double monitor_interval = 0.1;  // seconds
  std::string log_dir;
  StreamChoice redirects, tee;
  std::string token_file;
  std::vector<std::string> command;  // the worker's words, `train --...`
  std::vector<std::string> warnings;
  // srun started this agent in a step whose nodes are those of the job.
  std::optional<SlurmStep> slurm;
  bool is_elastic() const { return min_nodes < nnodes; }
  std::string nodes_text() const;  // as --nnodes gives them
  // Nodes meet again and again (membership.h), not once.
  bool has_rounds() const { return is_elastic() || rdzv_backend == RendezvousBackend::kEtcd; }
  // What attempts of this start are counted from: a job that Slurm has requeued goes on as one that
  // was restarted, and no two of its attempts have one number.
  int earlier_attempts() const { return slurm ? slurm->restarts * (max_restarts + 1) : 0; }
  bool help = false;
  std::string help_word;  // only options with this word are wanted
};

using RunEnvironment = Environment;

// Reads the words after `tessera run`. The first word that is no option of run, or what follows
// `--`, is the worker's command. Options that are not given are taken from torchrun's variables
// (PET_NNODES ...), which Kubernetes operators set; what says where nodes meet, if nothing of it is
// given, from srun's or an operator's others (run_environment.h). Afterwards rdzv_backend and
// rdzv_endpoint are set and agree with each other, except for a job on one host alone, which has no
// endpoint. UsageError for what is unknown, out of range, contradictory or not built.
RunOptions parse_run_options(std::span<const std::string> arguments,
                             const RunEnvironment& environment);

// Usage, examples and every option; with a `word` only the options that have it in their name or
// help, UsageError where none has.
std::string run_help(std::string_view word = "");

}  // namespace tessera
