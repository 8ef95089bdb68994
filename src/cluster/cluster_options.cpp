#include "cluster/cluster_options.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "cluster/instance_types.h"

namespace tessera {
namespace {

using Text = const std::string&;
using Options = ClusterOptions;

constexpr int kSlurm = 1, kKubernetes = 2, kBoth = 3;

struct Row {
  std::string_view name, alias;
  std::string_view value;  // what --help calls it; empty: a flag
  int systems;
  std::string_view help;
  void (*set)(Options& options, Text value, Text spelling);
};

int number(Text text, int lowest, int highest, Text spelling) {
  const auto value = parse_number<int>(text);
  if (value && *value >= lowest && *value <= highest) return *value;
  throw UsageError(
      cat(spelling, " must be a number from ", lowest, " to ", highest, ": it is '", text, "'"));
}

bool boolean(Text text, Text spelling) {
  std::string word = lower(text);
  if (word.empty() || word == "1" || word == "true" || word == "yes") return true;
  if (word == "0" || word == "false" || word == "no") return false;
  throw UsageError(cat(spelling, " must be true or false: it is '", text, "'"));
}

// What stands in a line of a script or a manifest by itself.
std::string plain(Text text, Text spelling, std::string_view more = "") {
  for (char c : text) {
    bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                std::string_view("-_.").find(c) != std::string_view::npos ||
                more.find(c) != std::string_view::npos;
    if (!good) {
      throw UsageError(cat(spelling, " cannot have a '", c, "' in it: it is '", text, "'"));
    }
  }
  if (text.empty()) throw UsageError(cat(spelling, " needs a value"));
  return text;
}

// A value that lies in a line; quoted there.
std::string line(Text text, Text spelling) {
  bool good = !text.empty() && text.find_first_of(std::string("\n\r\0", 3)) == std::string::npos;
  if (!good) throw UsageError(cat(spelling, " must be one line that is not empty"));
  return text;
}

std::string one_of(std::initializer_list<std::string_view> words, Text text, Text spelling) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  throw UsageError(cat(spelling, " is one of ", join(words, ", "), ": it is '", text, "'"));
}

constexpr int64_t kNoLimit = 0;

// Seconds of a time limit as sbatch reads it, kNoLimit where it sets none; nothing for other forms.
std::optional<int64_t> slurm_seconds(std::string_view text) {
  if (lower(text) == "unlimited" || lower(text) == "infinite") return kNoLimit;
  const size_t dash = text.find('-');
  const bool has_days = dash != text.npos;
  std::vector<std::string_view> words = split(has_days ? text.substr(dash + 1) : text, ':');
  if (words.size() > 3) return std::nullopt;
  std::vector<int64_t> units{86'400, 3'600, 60, 1};
  if (has_days) {
    words.insert(words.begin(), text.substr(0, dash));
  } else {
    units.erase(units.begin(), units.begin() + (words.size() == 3 ? 1 : 2));
  }
  int64_t seconds = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto value = parse_number<int>(words[i]);
    if (!value || *value < 0) return std::nullopt;
    seconds += *value * units[i];
  }
  return seconds;
}

std::string time_limit(Text text, Text spelling) {
  if (slurm_seconds(plain(text, spelling, ":"))) return text;
  throw UsageError(cat(spelling, " '", text,
                       "' is no time limit of Slurm: give MINUTES, MINUTES:SECONDS, "
                       "HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES or "
                       "DAYS-HOURS:MINUTES:SECONDS"));
}

// An amount of bytes as Kubernetes writes it.
std::string quantity(Text text, Text spelling) {
  constexpr std::string_view kDigits = "0123456789";
  const std::string_view value = text;
  const size_t end = std::min(value.find_first_not_of("0123456789."), value.size());
  const std::string_view mantissa = value.substr(0, end), suffix = value.substr(end);
  const bool is_number = mantissa.find_first_of(kDigits) != mantissa.npos &&
                         std::count(mantissa.begin(), mantissa.end(), '.') <= 1;
  bool has_unit = suffix.empty();
  for (std::string_view unit : {"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
    has_unit |= suffix == unit;
  const bool has_exponent = suffix.size() > 1 && (suffix[0] == 'e' || suffix[0] == 'E') &&
                            suffix.find_first_not_of(kDigits, 1) == suffix.npos;
  if (is_number && (has_unit || has_exponent)) return text;
  throw UsageError(cat(spelling, " '", text,
                       "' is no quantity of Kubernetes: give a number of bytes, or one with k, M, "
                       "G, T, P, E (powers of 1000) or Ki, Mi, Gi, Ti, Pi, Ei (of 1024): 64Gi"));
}

constexpr Row kRows[] = {
    {"job_name", "name", "NAME", kBoth, "name of the job, default tessera",
     [](Options& o, Text v, Text s) { o.job_name = plain(v, s); }},
    {"nodes", "nnodes", "N", kBoth, "number of nodes, default 1",
     [](Options& o, Text v, Text s) { o.nodes = number(v, 1, 65'536, s); }},
    {"nproc_per_node", "", "K", kBoth, "ranks a node, default 1",
     [](Options& o, Text v, Text s) { o.nproc_per_node = number(v, 1, 4'096, s); }},
    {"cpus", "cpus_per_task", "C", kBoth, "cores a node; with --launcher srun a rank",
     [](Options& o, Text v, Text s) { o.cpus = number(v, 1, 65'536, s); }},
    {"gpus_per_node", "", "G", kBoth, "GPUs a node that are asked for, default 0",
     [](Options& o, Text v, Text s) { o.gpus_per_node = number(v, 0, 1'024, s); }},
    {"instance_type", "", "TYPE", kBoth,
     "of AWS, p5.48xlarge: variables of EFA and NCCL; in Kubernetes the nodes that are chosen, too",
     [](Options& o, Text v, Text s) { o.instance_type = plain(v, s); }},
    {"max_restarts", "", "R", kBoth, "the agents start failed ranks again, at most so often",
     [](Options& o, Text v, Text s) { o.max_restarts = number(v, 0, 1'000'000, s); }},
    {"file", "o", "FILE", kBoth, "where to write; default: standard output",
     [](Options& o, Text v, Text s) { o.file = line(v, s); }},

    {"launcher", "", "NAME", kSlurm, "run: an agent a node (default); srun: a task a rank",
     [](Options& o, Text v, Text s) {
       o.launcher = one_of({"run", "srun"}, v, s);
     }},
    {"time", "", "LIMIT", kSlurm, "time limit as Slurm writes it, 4:00:00",
     [](Options& o, Text v, Text s) { o.time = time_limit(v, s); }},
    {"partition", "", "NAME", kSlurm, "partition (queue)",
     [](Options& o, Text v, Text s) { o.partition = plain(v, s, ","); }},
    {"account", "", "NAME", kSlurm, "account that the job is charged to",
     [](Options& o, Text v, Text s) { o.account = plain(v, s); }},
    {"qos", "", "NAME", kSlurm, "quality of service",
     [](Options& o, Text v, Text s) { o.qos = plain(v, s); }},
    {"exclusive", "", "", kSlurm, "no other job on the nodes",
     [](Options& o, Text v, Text s) { o.exclusive = boolean(v, s); }},
    {"log", "output", "FILE", kSlurm, "output of the job, default %x_%j.out (name, number)",
     [](Options& o, Text v, Text s) { o.log = plain(v, s, "/%"); }},
    {"container_image", "image", "IMAGE", kSlurm,
     "the job runs in this container, by pyxis and enroot",
     [](Options& o, Text v, Text s) { o.image = line(v, s); }},
    {"container_mounts", "", "A:B,...", kSlurm, "directories of the host in the container",
     [](Options& o, Text v, Text s) { o.container_mounts.push_back(line(v, s)); }},
    {"container_mount_home", "", "", kSlurm, "the home directory in the container, too",
     [](Options& o, Text v, Text s) { o.container_mount_home = boolean(v, s); }},
    {"requeue", "", "yes|no", kSlurm, "the job comes back after its time limit and a lost node",
     [](Options& o, Text v, Text s) { o.requeue = boolean(v, s); }},
    {"save_margin", "", "SECONDS", kSlurm,
     "it saves so long before its limit, default 120; Slurm may be 60 s late",
     [](Options& o, Text v, Text s) { o.save_margin = number(v, 10, 65'535, s); }},
    {"auto_resume", "", "WHEN", kSlurm,
     "on, off or auto: srun's --auto-resume=1 of SageMaker HyperPod, auto: where that is",
     [](Options& o, Text v, Text s) {
       o.auto_resume = one_of({"auto", "on", "off"}, v, s);
     }},
    {"sbatch", "", "OPTION", kSlurm, "a further line of the script, --sbatch=--constraint=a100",
     [](Options& o, Text v, Text s) {
       if (!v.starts_with("-")) throw UsageError(cat(s, " takes an option of sbatch: '", v, "'"));
       o.sbatch.push_back(line(v, s));
     }},

    {"kind", "", "KIND", kKubernetes,
     "job (Indexed Job and Service), jobset, pytorchjob or trainjob; default job",
     [](Options& o, Text v, Text s) {
       o.kind = one_of({"job", "jobset", "pytorchjob", "trainjob"}, lower(v), s);
     }},
    {"image", "container_image", "IMAGE", kKubernetes, "container with tessera in it",
     [](Options& o, Text v, Text s) { o.image = plain(v, s, "/:@[]"); }},
    {"pull_policy", "", "WHEN", kKubernetes, "Always, IfNotPresent (default) or Never",
     [](Options& o, Text v, Text s) {
       o.pull_policy = one_of({"Always", "IfNotPresent", "Never"}, v, s);
     }},
    {"namespace", "", "NAME", kKubernetes, "namespace of all objects",
     [](Options& o, Text v, Text s) { o.name_space = plain(v, s); }},
    {"memory", "", "QUANTITY", kKubernetes, "memory a node, 64Gi",
     [](Options& o, Text v, Text s) { o.memory = quantity(v, s); }},
    {"shm_size", "", "QUANTITY", kKubernetes,
     "of /dev/shm, through which ranks of a node exchange tensors; default 16Gi",
     [](Options& o, Text v, Text s) { o.shm_size = quantity(v, s); }},
    {"efa_per_node", "", "N", kKubernetes, "EFA interfaces a node; default: those of the type",
     [](Options& o, Text v, Text s) { o.efa_per_node = number(v, 0, 64, s); }},
    {"claim", "", "NAME", kKubernetes, "PersistentVolumeClaim that all pods share, for checkpoints",
     [](Options& o, Text v, Text s) { o.claim = plain(v, s); }},
    {"claim_size", "", "QUANTITY", kKubernetes, "the claim is rendered, too, of this size",
     [](Options& o, Text v, Text s) { o.claim_size = quantity(v, s); }},
    {"storage_class", "", "NAME", kKubernetes, "storage class of the rendered claim",
     [](Options& o, Text v, Text s) { o.storage_class = plain(v, s); }},
    {"mount", "", "PATH", kKubernetes, "where the claim is in the pods, default /checkpoints",
     [](Options& o, Text v, Text s) {
       o.mount = line(v, s);
       if (v[0] != '/') throw UsageError(cat(s, " must be an absolute path: it is '", v, "'"));
     }},
    {"secret", "", "NAME", kKubernetes, "Secret with the job's token; default NAME-token",
     [](Options& o, Text v, Text s) { o.secret = plain(v, s); }},
    {"grace", "", "SECONDS", kKubernetes,
     "time of a pod between SIGTERM and SIGKILL, for a last step and its save; default 120",
     [](Options& o, Text v, Text s) { o.grace = number(v, 1, 86'400, s); }},
    {"elastic", "", "", kKubernetes,
     "pytorchjob: an elastic policy, by which pods meet at worker 0, or at --etcd_image",
     [](Options& o, Text v, Text s) { o.elastic = boolean(v, s); }},
    {"min_nodes", "", "N", kKubernetes,
     "with --elastic: so few pods still go on with the job; default: all of --nodes",
     [](Options& o, Text v, Text s) { o.min_nodes = number(v, 1, 65'536, s); }},
    {"etcd_image", "", "IMAGE", kKubernetes,
     "a Service and a Deployment of etcd, too; with --elastic the pods meet there",
     [](Options& o, Text v, Text s) { o.etcd_image = plain(v, s, "/:@[]"); }},
    {"runtime", "", "NAME", kKubernetes,
     "trainjob: its ClusterTrainingRuntime, default torch-distributed",
     [](Options& o, Text v, Text s) { o.runtime = plain(v, s); }},
};

bool is_of(const Row& row, ClusterSystem system) {
  return (row.systems & static_cast<int>(system)) != 0;
}

[[noreturn]] void refuse(Text spelling, Text bare, ClusterSystem system) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (is_of(row, system)) names.emplace_back(row.name);
  }
  std::string close = nearest(bare, names);
  throw UsageError(cat("unknown option ", spelling,
                       close.empty() ? "." : cat("; did you mean --", close, "?"),
                       " Options of the training come after its command: ... render [OPTIONS] "
                       "train [ITS OPTIONS]"));
}

bool has_image(const Options& o) { return !o.image.empty(); }

void check_slurm(const Options& o) {
  if (int64_t limit = slurm_seconds(o.time).value_or(kNoLimit);
      limit != kNoLimit && limit <= o.save_margin) {
    throw UsageError(cat("--time ", o.time, " is not longer than --save_margin ", o.save_margin,
                         ", the seconds before its end in which the job saves"));
  }
  if (!has_image(o) && (!o.container_mounts.empty() || o.container_mount_home)) {
    throw UsageError("--container_mounts and --container_mount_home need --container_image");
  }
  if (o.launcher == "srun" && o.max_restarts > 0) {
    throw UsageError(
        "--max_restarts is for agents, which --launcher srun has none of: leave one of them out");
  }
  if (o.launcher == "srun" && o.command[0] != "train") {
    throw UsageError(cat("--launcher srun starts `tessera train` only, not '", o.command[0], "'"));
  }
}

void check_kubernetes(const Options& o) {
  if (!has_image(o)) throw UsageError("--image IMAGE is missing: the container with tessera in it");
  const std::string& name = o.job_name;
  bool label = name.size() <= 40 && name[0] >= 'a' && name[0] <= 'z' && name.back() != '-' &&
               name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  if (!label) {
    throw UsageError(cat("--job_name '", name,
                         "': a name of Kubernetes has lower-case letters, digits and '-', begins "
                         "with a letter, and with room for the pods' numbers is 40 long at most"));
  }
  if (o.elastic && o.kind != "pytorchjob") {
    throw UsageError(cat("--elastic is for --kind pytorchjob, not ", o.kind));
  }
  if (o.min_nodes && !o.elastic) throw UsageError("--min_nodes is for --elastic");
  if (o.min_nodes && *o.min_nodes > o.nodes) {
    throw UsageError(cat("--min_nodes=", *o.min_nodes, " must be at most --nodes=", o.nodes));
  }
  if (o.claim.empty() && !(o.claim_size.empty() && o.storage_class.empty())) {
    throw UsageError("--claim_size and --storage_class need --claim NAME");
  }
  if (!o.storage_class.empty() && o.claim_size.empty()) {
    throw UsageError("--storage_class is of a claim that is rendered: give --claim_size too");
  }
}

}  // namespace

ClusterOptions parse_cluster_options(std::span<const std::string> arguments, ClusterSystem system) {
  Options o;
  size_t next = 0;
  while (next < arguments.size()) {
    const std::string& word = arguments[next];
    if (word == "--help" || word == "-h") {
      o.help = true;
      return o;
    }
    if (word == "--") {
      ++next;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    ++next;
    size_t equals = word.find('=');
    std::string spelling = word.substr(0, equals);
    std::string bare = spelling.substr(spelling.starts_with("--") ? 2 : 1);
    std::replace(bare.begin(), bare.end(), '-', '_');
    auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) {
      return is_of(r, system) && (bare == r.name || bare == r.alias) && !bare.empty();
    });
    if (row == std::end(kRows)) refuse(spelling, bare, system);
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (!row->value.empty()) {
      if (next == arguments.size())
        throw UsageError(cat(spelling, " needs a value (", row->value, ")"));
      value = arguments[next++];
    }
    row->set(o, value, spelling);
  }
  o.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (o.command.empty()) {
    throw UsageError("nothing to run: end the line with the command of a rank: train [OPTIONS]");
  }
  for (const std::string& word : o.command)
    line(word.empty() ? "x" : word, "a word of the command");
  if (!o.instance_type.empty()) find_instance_type(o.instance_type);  // refuses an unknown one
  system == ClusterSystem::kSlurm ? check_slurm(o) : check_kubernetes(o);
  return o;
}

std::vector<ClusterOption> cluster_option_list(ClusterSystem system) {
  std::vector<ClusterOption> list;
  for (const Row& row : kRows)
    if (is_of(row, system)) list.push_back({row.name, row.alias, row.value, row.help});
  return list;
}

std::string cluster_option_help(ClusterSystem system) {
  std::string text;
  for (const ClusterOption& row : cluster_option_list(system)) {
    std::string name = cat("--", row.name, row.value.empty() ? "" : " ", row.value);
    if (!row.alias.empty()) name += cat(row.alias.size() == 1 ? ", -" : ", --", row.alias);
    text += format("  %-42s %s\n", name.c_str(), std::string(row.help).c_str());
  }
  return text;
}

}  // namespace tessera
