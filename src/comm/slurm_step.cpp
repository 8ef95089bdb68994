#include "comm/slurm_step.h"

#include <algorithm>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/program_output.h"
#include "base/text.h"
#include "comm/job.h"
#include "comm/slurm_lists.h"
#include "comm/tcp_socket.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kScontrolTimeout{20};
// Below the ports that systems give out by themselves, and away from Slurm's own.
constexpr uint64_t kFirstPort = 20'000, kPortRange = 10'000;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value ? value : "";
  }

  std::string required(const char* name) const {
    std::string value = text(name);
    if (value.empty()) {
      throw UsageError(
          cat("this process is one of several tasks of srun, but environment variable ", name,
              " is missing, without which it cannot find the others. Start it "
              "by srun with its usual variables (--export=ALL), or alone: srun "
              "--nodes=1 --ntasks=1"));
    }
    return value;
  }

  std::string digits(const char* name) const {
    std::string value = required(name);
    if (value.size() > 18 || value.find_first_not_of("0123456789") != std::string::npos) {
      refuse(name, value, "must be a number");
    }
    return value;
  }

  int number(const char* name, int lowest, int highest) const {
    std::string value = required(name);
    const auto result = parse_number<int>(value);
    if (!result || *result < lowest || *result > highest) {
      refuse(name, value, cat("must be a number from ", lowest, " to ", highest));
    }
    return *result;
  }

  [[noreturn]] static void refuse(const char* name, const std::string& value,
                                  const std::string& rule) {
    throw UsageError(cat("environment variable ", name, " ", rule, ": it is '", value, "'"));
  }

 private:
  const Environment& environment_;
};

int tasks_of_node(const Reader& read, const SlurmStep& step) {
  const char* name = "SLURM_STEP_TASKS_PER_NODE";
  std::string list = read.text(name);
  if (list.empty()) {
    if (step.nodes == 1) return step.tasks;
    if (step.tasks == step.nodes) return 1;
    return step.local_task + 1;
  }
  std::vector<int> counts = expand_task_counts(list, name);
  int64_t sum = 0;
  for (int count : counts) sum += count;
  if (static_cast<int>(counts.size()) != step.nodes || sum != step.tasks) {
    Reader::refuse(name, list, cat("must be of ", step.nodes, " nodes and ", step.tasks, " tasks"));
  }
  return counts[static_cast<size_t>(step.node)];
}

bool resolves(const std::string& host) {
  try {
    is_loopback(host);
    return true;
  } catch (const CommError&) {
    return false;
  }
}

// The word behind `label` in the controller's description of a node.
std::string word_behind(const std::string& text, const std::string& label) {
  size_t at = text.find(label);
  if (at == std::string::npos) return "";
  std::string_view rest = std::string_view(text).substr(at + label.size());
  return std::string(rest.substr(0, rest.find_first_of(" \n")));
}

}  // namespace

int number_or_zero(const std::string& text) { return parse_number<int>(text).value_or(0); }

std::string SlurmStep::name() const { return cat(job, ".", step); }

std::string SlurmStep::identity() const {
  return hex(sha256(cat("tessera slurm ", cluster, " ", job, " ", step))).substr(0, 32);
}

int SlurmStep::first_port() const {
  uint64_t number = std::stoull(job) * kPorts + std::stoull(step);
  return static_cast<int>(kFirstPort + number % kPortRange);
}

std::string SlurmStep::token_from(const std::string& secret) const {
  return hex(hmac_sha256(secret, cat("slurm ", cluster, " ", job, " ", step, " ", restarts)));
}

std::string SlurmStep::token_file() const {
  std::string start = hex(sha256(cat(identity(), " ", restarts, " ", launcher))).substr(0, 12);
  return cat(".tessera-token-", job, ".", step, "-", start);
}

std::optional<SlurmStep> slurm_step(const Environment& environment) {
  Reader read(environment);
  bool several = number_or_zero(read.text("SLURM_STEP_NUM_TASKS")) > 1 ||
                 number_or_zero(read.text("SLURM_PROCID")) > 0;
  // The first of a job's tasks, which misses the number of them.
  several |= !read.text("SLURM_STEP_ID").empty() && !read.text("SLURM_PROCID").empty() &&
             read.text("SLURM_STEP_NUM_TASKS").empty() &&
             number_or_zero(read.text("SLURM_NTASKS")) > 1;
  if (!several) {
    bool alone = read.text("SLURM_STEP_NUM_TASKS") == "1" && read.text("SLURM_PTY_PORT").empty();
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES",
                             "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"})
      alone &= !read.text(name).empty();
    if (!alone) return std::nullopt;
  }
  SlurmStep step;
  step.cluster = read.text("SLURM_CLUSTER_NAME");
  step.job = read.digits("SLURM_JOB_ID");
  step.step = read.digits("SLURM_STEP_ID");
  step.restarts = std::max(0, number_or_zero(read.text("SLURM_RESTART_COUNT")));
  step.tasks = read.number("SLURM_STEP_NUM_TASKS", 1, kMaxWorldSize);
  step.task = read.number("SLURM_PROCID", 0, step.tasks - 1);
  step.nodes = read.number("SLURM_STEP_NUM_NODES", 1, step.tasks);
  step.node = read.number("SLURM_NODEID", 0, step.nodes - 1);
  step.local_task = read.number("SLURM_LOCALID", 0, step.tasks - 1);
  step.local_tasks = tasks_of_node(read, step);
  if (step.local_task >= step.local_tasks) {
    Reader::refuse("SLURM_LOCALID", cat(step.local_task),
                   cat("must be below the ", step.local_tasks, " tasks of node ", step.node));
  }
  step.cores = std::max(0, number_or_zero(read.text("SLURM_CPUS_PER_TASK")));
  const char* list =
      read.text("SLURM_STEP_NODELIST").empty() ? "SLURM_JOB_NODELIST" : "SLURM_STEP_NODELIST";
  step.first_node = expand_host_list(read.required(list), list).front();
  step.launcher =
      cat(read.text("SLURM_LAUNCH_NODE_IPADDR"), " ", read.text("SLURM_SRUN_COMM_PORT"));
  return step;
}

std::string reach_slurm_node(const std::string& node) {
  if (resolves(node)) return node;
  auto asked = program_output({"scontrol", "show", "node", "-o", node}, kScontrolTimeout);
  std::string address = asked ? word_behind(asked->out, " NodeAddr=") : "";
  if (!address.empty() && address != node && resolves(address)) {
    TESSERA_INFO(cat("The name of node '", node, "' does not resolve on this host: using ", address,
                     ", by which Slurm's controller reaches it"));
    return address;
  }
  throw UserError(cat("the job's first node, '", node,
                      "', cannot be found: its name does not "
                      "resolve on this host, and scontrol ",
                      !asked            ? "cannot be run here"
                      : asked->status   ? "knows no such node"
                      : address == node ? "knows no other address for it"
                                        : "knows no address that does",
                      ". Name a host that all nodes reach by MASTER_ADDR (train) or "
                      "--rdzv_endpoint (run)"));
}

}  // namespace tessera
