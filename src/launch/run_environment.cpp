#include "launch/run_environment.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

std::string text_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value ? value : "";
}

// A variable that an operator sets to a number from `lowest` on; no value where it is not set.
std::optional<int> number_of(const Environment& environment, const char* name, int lowest) {
  std::string text = text_of(environment, name);
  if (text.empty()) return std::nullopt;
  const auto value = parse_number<int>(text);
  if (!value || *value < lowest) {
    throw UsageError(cat("environment variable ", name, " must be a number from ", lowest,
                         " on: it is '", text, "'"));
  }
  return value;
}

void complete_from_slurm(RunOptions& o, const std::set<std::string_view>& given,
                         const Environment& environment) {
  auto step = slurm_step(environment);
  if (!step || (given.contains("nnodes") && o.nnodes == 1 && step->tasks > 1)) return;
  if (step->tasks != step->nodes) {
    throw UsageError(cat("srun started ", step->tasks, " tasks on ", step->nodes,
                         step->nodes == 1 ? " node" : " nodes",
                         ", and an agent is for all ranks of a node: srun --ntasks-per-node=1 "
                         "tessera run --nproc_per_node RANKS train ..., or, a task a rank and "
                         "without agents, srun tessera train ..."));
  }
  if (o.is_elastic()) {
    throw UsageError(cat("--nnodes=", o.nodes_text(),
                         " under srun: nodes that come later have to know where the others are, "
                         "give --rdzv_endpoint HOST:PORT; or leave --nnodes out for a job of all ",
                         step->nodes, " nodes"));
  }
  auto require = [&](const char* option, int value, int truth, const char* what) {
    if (!given.contains(option) || value == truth) return;
    throw UsageError(
        cat("--", option, "=", value, ", but srun says ", truth, " (", what, "): leave it out"));
  };
  require("nnodes", o.nnodes, step->nodes, "SLURM_STEP_NUM_NODES");
  require("node_rank", o.node_rank.value_or(0), step->node, "SLURM_NODEID");
  o.slurm = step;
  o.min_nodes = o.nnodes = step->nodes;
  o.node_rank = step->node;
  if (o.rdzv_id.empty()) o.rdzv_id = step->name();
  if (o.nnodes == 1) return;
  o.rdzv_endpoint = Endpoint{step->first_node, o.master_port.value_or(step->first_port())};
  o.endpoint_has_port = true;
}

// Of a pod: a worker of another agent has LOCAL_RANK.
struct PodVariables {
  std::optional<int> rank, world_size, port;
  std::string address;

  explicit PodVariables(const Environment& environment) {
    if (!text_of(environment, "LOCAL_RANK").empty()) return;
    address = text_of(environment, "MASTER_ADDR");
    if (address.empty() || text_of(environment, "RANK").empty()) return;
    rank = number_of(environment, "RANK", 0);
    world_size = number_of(environment, "WORLD_SIZE", 1);
    port = number_of(environment, "MASTER_PORT", 1);
  }
  bool are_there() const { return rank && world_size && port; }
};

[[noreturn]] void refuse_contradiction(const std::string& one, const std::string& other) {
  throw UsageError(cat("the variables of this pod contradict each other: ", one, ", but ", other,
                       ". Did something else than the operator set one of them?"));
}

// An operator may set both kinds: they are of one job, or one of them is somebody else's.
// WORLD_SIZE counts processes where PET_NPROC_PER_NODE is a number, and pods where it is a word or
// not set.
void compare(const RunOptions& o, const PodVariables& pod, const std::set<std::string_view>& given,
             const Environment& environment) {
  if (given.contains("nnodes") || given.contains("node_rank")) return;
  if (o.node_rank && *o.node_rank != *pod.rank) {
    refuse_contradiction(cat("PET_NODE_RANK=", *o.node_rank),
                         cat("RANK=", *pod.rank, ", which counts pods"));
  }
  std::string address = text_of(environment, "PET_MASTER_ADDR");
  if (!address.empty() && address != pod.address) {
    refuse_contradiction(cat("PET_MASTER_ADDR=", address), cat("MASTER_ADDR=", pod.address));
  }
  if (text_of(environment, "PET_NNODES").empty())
    return;  // the pods are as many as WORLD_SIZE says
  std::string ranks = text_of(environment, "PET_NPROC_PER_NODE");
  bool word = ranks.find_first_not_of("0123456789") != std::string::npos;
  int64_t factor =
      ranks.empty() || word ? 1 : number_of(environment, "PET_NPROC_PER_NODE", 1).value();
  if (*pod.world_size == o.nnodes * factor) return;
  refuse_contradiction(
      cat("PET_NNODES=", o.nnodes, ranks.empty() ? "" : cat(", PET_NPROC_PER_NODE=", ranks)),
      cat("WORLD_SIZE=", *pod.world_size));
}

}  // namespace

void complete_from_environment(RunOptions& o, const std::set<std::string_view>& given,
                               const Environment& environment) {
  if (o.standalone) return;
  PodVariables pod(environment);
  if (pod.are_there()) compare(o, pod, given, environment);
  if (o.rdzv_endpoint || !o.master_addr.empty()) return;
  if (!pod.are_there()) return complete_from_slurm(o, given, environment);
  if (!given.contains("nnodes") && text_of(environment, "PET_NNODES").empty())
    o.min_nodes = o.nnodes = *pod.world_size;
  if (!o.node_rank) o.node_rank = *pod.rank;
  o.master_addr = pod.address;
  if (!o.master_port) o.master_port = *pod.port;
}

}  // namespace tessera
