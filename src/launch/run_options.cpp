#include "launch/run_options.h"

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "launch/run_environment.h"
#include "launch/run_option_table.h"

namespace tessera {
namespace {

constexpr int kC10dPort = 29'400, kStaticPort = 29'500, kEtcdPort = 2379;

constexpr const char* kHelp = R"(Usage: tessera run [OPTIONS] [--] COMMAND [ARGUMENTS]

Starts COMMAND (train, another command of tessera, or any program) once per rank on this node and, with
--nnodes, together with the same call on the other nodes. It marks each line of output with its rank, passes
signals on, ends all ranks when one fails and starts them again up to --max_restarts times. Options are those
of torchrun; an option that is not given is taken from its variable (PET_NNODES ...), and the nodes, if nothing
says them, from what srun or a Kubernetes operator sets (docs/slurm.md, docs/kubernetes.md).

Examples
  tessera run --nproc_per_node 4 train --model_name llama3.2_1b --dataset corpus/ --checkpoint_dir ckpt
  tessera run --nproc_per_node 4 --max_restarts 3 --log_dir logs train ...
  srun --ntasks-per-node=1 tessera run --nproc_per_node 8 train ...     under Slurm it finds the nodes by itself
  tessera run --nnodes 2 --node_rank 1 --master_addr node-0 --nproc_per_node 8 train ...

Options
)";

constexpr UnknownOptionHint kUnknownOption{
    " of run",
    " Options of the worker come after its command: tessera run [OPTIONS] train [ITS OPTIONS]"};

// What is not `given` and has a variable of torchrun.
void take_variables(RunOptions& options, const std::set<std::string_view>& given,
                    const RunEnvironment& environment) {
  for (const CommandOption<RunOptions>& option : run_option_table()) {
    std::string name = cat("PET_", option.name);
    for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    const char* value = given.contains(option.name) ? nullptr : environment(name.c_str());
    if (value && *value) option.set(options, value, cat("environment variable ", name));
  }
}

RunOptions read_words(std::span<const std::string> words, const RunEnvironment& environment) {
  RunOptions options;
  std::set<std::string_view> given;
  while (!words.empty() && is_option(words[0])) {
    const std::string spelling = words[0].substr(0, words[0].find('='));
    if (spelling == "-m" || spelling == "--module") {
      throw UsageError(cat(spelling,
                           ": tessera runs no Python modules; write `tessera run ... "
                           "train --model_type ...`, or `-- python3 -m MODULE`"));
    }
    given.insert(take_option(run_option_table(), words, options, kUnknownOption));
  }
  options.help = !words.empty() && is_help(words[0]);
  if (options.help) {
    if (words.size() > 1 && !words[1].starts_with("-")) options.help_word = words[1];
    return options;
  }
  if (!words.empty() && words[0] == "--") words = words.subspan(1);
  options.command.assign(words.begin(), words.end());
  take_variables(options, given, environment);
  // As for torchrun, for which its variable is as good as the option.
  if (given.contains("master_addr") && options.rdzv_endpoint && !options.standalone) {
    const bool both = given.contains("rdzv_endpoint");
    options.warnings.push_back(
        cat("--master_addr ", options.master_addr, " has no effect: nodes meet at ",
            options.rdzv_endpoint->host, ", which ",
            both ? "--rdzv_endpoint" : "environment variable PET_RDZV_ENDPOINT", " names"));
  }
  complete_from_environment(options, given, environment);
  return options;
}

// One node serves where it was told to, otherwise on any port of the loopback interface.
void choose_for_one_node(RunOptions& o) {
  bool master = !o.master_addr.empty() || o.master_port;
  if (o.rdzv_backend == RendezvousBackend::kEtcd) {
    o.warnings.push_back("--nnodes 1: one node needs no etcd, it is not used");
    o.rdzv_endpoint.reset();
  }
  if (o.standalone) {
    if (o.rdzv_endpoint || master) {
      o.warnings.push_back("--standalone: the endpoint and the master's address have no effect");
    }
    o.rdzv_endpoint.reset();
  } else if (o.rdzv_endpoint) {
    if (!o.endpoint_has_port) o.rdzv_endpoint->port = kC10dPort;
  } else if (master) {
    std::string host = o.master_addr.empty() ? "127.0.0.1" : o.master_addr;
    o.rdzv_endpoint = Endpoint{host, o.master_port.value_or(kStaticPort)};
  }
  o.rdzv_backend = RendezvousBackend::kStatic;
  o.node_rank = 0;
}

void choose_for_etcd(RunOptions& o) {
  if (!o.rdzv_endpoint)
    throw UsageError("--rdzv_backend etcd needs --rdzv_endpoint HOST[:PORT], where etcd is");
  if (!o.endpoint_has_port) o.rdzv_endpoint->port = kEtcdPort;
  for (Endpoint& endpoint : o.other_endpoints) {
    if (endpoint.port < 0) endpoint.port = kEtcdPort;
  }
  if (o.etcd.user.empty() != o.etcd.password_file.empty())
    throw UsageError("--rdzv_conf: user and password_file belong together");
  if (o.etcd.cert.empty() != o.etcd.key.empty())
    throw UsageError("--rdzv_conf: cert and key belong together");
  if (o.rdzv_id.empty()) {
    o.rdzv_id = "none";  // torchrun's
    o.warnings.push_back(
        "no --rdzv_id: jobs without one that meet at the same etcd become one job");
  }
}

void choose_for_nodes(RunOptions& o) {
  if (o.standalone) throw UsageError("--standalone is for one node: leave it or --nnodes out");
  if (o.is_elastic() && o.node_rank) {
    throw UsageError(cat("--nnodes=", o.nodes_text(), " with --node_rank=", *o.node_rank,
                         ": nodes that leave and join are numbered as they arrive, leave "
                         "--node_rank out"));
  }
  if (o.rdzv_backend == RendezvousBackend::kEtcd) return choose_for_etcd(o);
  if (!o.other_endpoints.empty()) {
    throw UsageError("--rdzv_endpoint: several endpoints are for --rdzv_backend etcd");
  }
  if (o.is_elastic() && o.rdzv_endpoint && !o.rdzv_backend)
    o.rdzv_backend = RendezvousBackend::kC10d;
  if (o.is_elastic() && o.rdzv_backend != RendezvousBackend::kC10d) {
    throw UsageError(cat("--nnodes=", o.nodes_text(),
                         " needs --rdzv_backend c10d or etcd, and --rdzv_endpoint HOST[:PORT]"));
  }
  if (!o.rdzv_backend) {
    bool meet = o.rdzv_endpoint && !o.node_rank;
    o.rdzv_backend = meet ? RendezvousBackend::kC10d : RendezvousBackend::kStatic;
  }
  bool is_static = o.rdzv_backend == RendezvousBackend::kStatic;
  if (!o.rdzv_endpoint) {
    if (o.master_addr.empty()) {
      throw UsageError(cat("--nnodes=", o.nnodes, " needs --rdzv_endpoint HOST:PORT",
                           is_static ? ", or --master_addr and --node_rank" : ""));
    }
    o.rdzv_endpoint = Endpoint{o.master_addr, o.master_port.value_or(kStaticPort)};
  } else if (!o.endpoint_has_port) {
    o.rdzv_endpoint->port = is_static ? o.master_port.value_or(kStaticPort) : kC10dPort;
  }
  if (o.rdzv_endpoint->port == 0) {
    throw UsageError(cat("--nnodes=", o.nnodes,
                         ": the nodes must know where to meet, give the endpoint a port"));
  }
  if (is_static && !o.node_rank) {
    throw UsageError(cat("--nnodes=", o.nnodes,
                         " with the static backend needs --node_rank R on each node, or use "
                         "--rdzv_backend c10d"));
  }
}

void check(RunOptions& o) {
  if (o.command.empty()) {
    throw UsageError("nothing to run: tessera run [OPTIONS] train [OPTIONS OF train]");
  }
  if (o.node_rank && *o.node_rank >= o.nnodes) {
    throw UsageError(cat("--node_rank=", *o.node_rank, " must be below --nnodes=", o.nnodes));
  }
  if (o.log_dir.empty() && !(o.redirects.is_empty() && o.tee.is_empty())) {
    throw UsageError("--redirects and --tee need --log_dir DIR");
  }
  if (!o.log_dir.empty() && o.redirects.is_empty() && o.tee.is_empty()) o.redirects.all = 3;
}

}  // namespace

std::string RunOptions::nodes_text() const {
  return is_elastic() ? cat(min_nodes, ":", nnodes) : cat(nnodes);
}

RunOptions parse_run_options(std::span<const std::string> arguments,
                             const RunEnvironment& environment) {
  RunOptions options = read_words(arguments, environment);
  if (options.help) return options;
  check(options);
  if (options.nnodes == 1) {
    choose_for_one_node(options);
  } else {
    choose_for_nodes(options);
  }
  return options;
}

std::string run_help(std::string_view word) {
  const std::string lines = option_lines(texts(run_option_table()), word);
  if (lines.empty()) {
    throw UsageError(
        cat("no option of tessera run has to do with '", word, "'; see tessera run --help"));
  }
  return cat(word.empty() ? kHelp : "", lines);
}

}  // namespace tessera
