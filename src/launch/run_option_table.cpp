#include "launch/run_option_table.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "base/thread_pool.h"

namespace tessera {
namespace {

constexpr int kMaxNodes = 65'536, kMaxLocalRanks = 4'096;

void set_nnodes(RunOptions& o, const std::string& text, const std::string& spelling) {
  size_t colon = text.find(':');
  o.min_nodes = o.nnodes = number(text.substr(0, colon), 1, kMaxNodes, spelling);
  if (colon == std::string::npos) return;
  o.nnodes = number(text.substr(colon + 1), 1, kMaxNodes, spelling);
  if (o.nnodes < o.min_nodes)
    throw UsageError(cat(spelling, "=", text, ": the least number of nodes comes first, MIN:MAX"));
}

// Those that CUDA shows to a process: what CUDA_VISIBLE_DEVICES chooses, else all that are here.
int visible_gpus() {
  int count = 0;
  if (const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES")) {
    for (std::string_view gpu : split(chosen, ',')) {
      if (trim(gpu).empty() || trim(gpu) == "-1") break;
      ++count;
    }
    return count;
  }
  std::error_code error;
  while (std::filesystem::exists(cat("/dev/nvidia", count), error)) ++count;
  return count;
}

void set_nproc(RunOptions& o, const std::string& text, const std::string& spelling) {
  std::string word = lower(text);
  const bool gpu = word == "gpu" || word == "cuda", automatic = word == "auto";
  if (gpu || automatic) {
    o.nproc_per_node = visible_gpus();
    if (o.nproc_per_node > 0) return;
    if (gpu)
      throw UsageError(cat(spelling, "=", text,
                           ": this host shows no GPU (/dev/nvidia0, CUDA_VISIBLE_DEVICES); give a "
                           "number, or cpu"));
  }
  const bool cores = automatic || word == "cpu";
  o.nproc_per_node = cores ? available_cores() : number(text, 1, kMaxLocalRanks, spelling);
}

void set_backend(RunOptions& o, const std::string& text, const std::string& spelling) {
  if (text == "c10d") {
    o.rdzv_backend = RendezvousBackend::kC10d;
  } else if (text == "static") {
    o.rdzv_backend = RendezvousBackend::kStatic;
  } else if (text == "etcd") {
    o.rdzv_backend = RendezvousBackend::kEtcd;
  } else if (text == "etcd-v2") {
    throw UsageError(cat(spelling, "=", text,
                         ": the second interface of etcd is gone since 3.6; use etcd, which speaks "
                         "the third (3.4 and later)"));
  } else {
    throw UsageError(cat(spelling, " must be c10d, etcd or static: it is '", text, "'"));
  }
}

void set_endpoint(RunOptions& o, const std::string& text, const std::string& spelling) {
  if (text.empty()) return;  // as torchrun's default
  o.other_endpoints.clear();
  bool first = true;
  for (std::string_view part : split(text, ',')) {
    Endpoint endpoint = parse_endpoint(trim(part), -1, spelling);
    if (std::exchange(first, false)) {
      o.endpoint_has_port = endpoint.port >= 0;
      if (!o.endpoint_has_port) endpoint.port = 0;
      o.rdzv_endpoint = endpoint;
    } else {
      o.other_endpoints.push_back(endpoint);
    }
  }
}

void set_conf(RunOptions& o, const std::string& text, const std::string& spelling) {
  const std::vector<std::string> known{"join_timeout",
                                       "timeout",
                                       "is_host",
                                       "keep_alive_interval",
                                       "close_timeout",
                                       "read_timeout",
                                       "last_call_timeout",
                                       "keep_alive_max_attempt",
                                       "rank",
                                       "store_type",
                                       "use_libuv",
                                       "protocol",
                                       "cacert",
                                       "cert",
                                       "key",
                                       "user",
                                       "password_file"};
  const std::map<std::string, std::string EtcdAccess::*> texts{
      {"cacert", &EtcdAccess::cacert},
      {"cert", &EtcdAccess::cert},
      {"key", &EtcdAccess::key},
      {"user", &EtcdAccess::user},
      {"password_file", &EtcdAccess::password_file}};
  for (std::string_view part : split(text, ',')) {
    if (trim(part).empty()) continue;
    size_t equals = part.find('=');
    std::string key(trim(part.substr(0, equals)));
    std::string value(equals == std::string_view::npos ? "" : trim(part.substr(equals + 1)));
    std::string what = cat(spelling, " ", key);
    if (key == "join_timeout" || key == "timeout") {
      o.join_timeout = number(value, 1.0, 1e6, what);
    } else if (key == "last_call_timeout") {
      o.last_call = number(value, 0.0, 1e6, what);
    } else if (key == "protocol") {
      if (value != "http" && value != "https")
        throw UsageError(cat(what, " must be http or https: it is '", value, "'"));
      o.etcd.protocol = value;
    } else if (auto file = texts.find(key); file != texts.end()) {
      o.etcd.*file->second = value;
    } else if (key == "is_host") {
      o.is_host = boolean(value, what);
    } else if (key == "keep_alive_interval") {
      o.keep_alive_interval = number(value, 0.05, 1e6, what);
    } else if (key == "keep_alive_max_attempt") {
      o.keep_alive_max_attempt = number(value, 1, 1'000'000, what);
    } else if (key == "rank") {
      o.node_rank = number(value, 0, kMaxNodes - 1, what);
    } else if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string close = nearest(key, known);
      throw UsageError(cat(spelling, ": unknown setting '", key, "'",
                           close.empty() ? "" : cat("; did you mean '", close, "'?")));
    }
  }
}

void set_streams(StreamChoice& choice, const std::string& text, const std::string& spelling) {
  for (std::string_view part : split(text, ',')) {
    std::string word(trim(part));
    size_t colon = word.find(':');
    if (colon == std::string::npos) {
      choice.all = number(word, 0, 3, spelling);
    } else {
      int rank = number(word.substr(0, colon), 0, kMaxLocalRanks - 1, spelling);
      choice.by_local_rank[rank] = number(word.substr(colon + 1), 0, 3, spelling);
    }
  }
}

using Text = const std::string&;

constexpr CommandOption<RunOptions> kTable[] = {
    {"nnodes", "nnode", "N[:M]",
     "number of nodes; MIN:MAX: they may leave and join (docs/launch.md)", set_nnodes},
    {"nproc_per_node", "", "K",
     "workers on this node; gpu: one a GPU, cpu: one a core, auto: gpu where there is one",
     set_nproc},
    {"node_rank", "", "R", "this node's number from 0; default with c10d: by arrival",
     [](RunOptions& o, Text v, Text s) { o.node_rank = number(v, 0, kMaxNodes - 1, s); }},
    {"rdzv_backend", "", "NAME",
     "c10d: the node with the endpoint's address serves; static: node 0 does; etcd", set_backend},
    {"rdzv_endpoint", "", "HOST[:PORT]",
     "where nodes meet; default port 29400 (c10d), 29500 (static), 2379 (etcd: also several, "
     "A,B,C)",
     set_endpoint},
    {"rdzv_id", "", "ID", "name of the job, equal on all nodes ($SLURM_JOB_ID)",
     [](RunOptions& o, Text v, Text) { o.rdzv_id = v; }},
    {"rdzv_conf", "", "K=V,...",
     "join_timeout=600, last_call_timeout=30, keep_alive_interval=5, keep_alive_max_attempt=3, "
     "is_host; etcd: protocol=https, cacert, cert, key, user, password_file",
     set_conf},
    {"master_addr", "", "HOST", "static: host of node 0",
     [](RunOptions& o, Text v, Text) { o.master_addr = v; }},
    {"master_port", "", "PORT", "static: its port, default 29500",
     [](RunOptions& o, Text v, Text s) { o.master_port = number(v, 0, 65535, s); }},
    {"local_addr", "", "ADDRESS", "address on which this node serves the store",
     [](RunOptions& o, Text v, Text) { o.local_addr = v; }},
    {"standalone", "", "", "one node; any free port",
     [](RunOptions& o, Text v, Text s) { o.standalone = v.empty() || boolean(v, s); }},
    {"token_file", "", "FILE", "secret of the job, equal on all nodes; or TESSERA_JOB_TOKEN",
     [](RunOptions& o, Text v, Text) { o.token_file = v; }},
    {"max_restarts", "", "R", "after a failure start all workers again, at most so often",
     [](RunOptions& o, Text v, Text s) { o.max_restarts = number(v, 0, 1'000'000, s); }},
    {"monitor_interval", "", "SECONDS", "how often nodes look for each other's failures",
     [](RunOptions& o, Text v, Text s) { o.monitor_interval = number(v, 0.01, 3600.0, s); }},
    {"log_dir", "", "DIR", "files DIR/[ID/]attempt_A/rank_R.out.log and .err.log",
     [](RunOptions& o, Text v, Text) { o.log_dir = v; }},
    {"redirects", "r", "STREAMS",
     "to files only: 1 output, 2 errors, 3 both (default), 0:1,1:3 by local rank",
     [](RunOptions& o, Text v, Text s) { set_streams(o.redirects, v, s); }},
    {"tee", "t", "STREAMS", "to files and here, in the same form",
     [](RunOptions& o, Text v, Text s) { set_streams(o.tee, v, s); }},
    {"role", "", "NAME", "accepted, no effect", [](RunOptions&, Text, Text) {}},
    {"start_method", "", "NAME", "accepted, no effect", [](RunOptions&, Text, Text) {}},
    {"no_python", "", "", "accepted, no effect", [](RunOptions&, Text, Text) {}},
};

}  // namespace

std::span<const CommandOption<RunOptions>> run_option_table() { return kTable; }

}  // namespace tessera
