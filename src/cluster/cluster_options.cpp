#include "cluster/cluster_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "cluster/instance_types.h"

namespace tessera {
namespace {

using Text = const std::string&;
using Options = ClusterOptions;

bool flag(Text text, Text spelling) { return text.empty() || boolean(text, spelling); }

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

constexpr CommandOption<Options> kOfBoth[] = {
    {"job_name", "name", "NAME", "name of the job, default tessera",
     [](Options& o, Text v, Text s) { o.job_name = plain(v, s); }},
    {"nodes", "nnodes", "N", "number of nodes, default 1",
     [](Options& o, Text v, Text s) { o.nodes = number(v, 1, 65'536, s); }},
    {"nproc_per_node", "", "K", "ranks a node, default 1",
     [](Options& o, Text v, Text s) { o.nproc_per_node = number(v, 1, 4'096, s); }},
    {"cpus", "cpus_per_task", "C", "cores a node; with --launcher srun a rank",
     [](Options& o, Text v, Text s) { o.cpus = number(v, 1, 65'536, s); }},
    {"gpus_per_node", "", "G", "GPUs a node that are asked for, default 0",
     [](Options& o, Text v, Text s) { o.gpus_per_node = number(v, 0, 1'024, s); }},
    {"instance_type", "", "TYPE",
     "of AWS, p5.48xlarge: variables of EFA and NCCL; in Kubernetes the nodes that are chosen, too",
     [](Options& o, Text v, Text s) { o.instance_type = plain(v, s); }},
    {"max_restarts", "", "R", "the agents start failed ranks again, at most so often",
     [](Options& o, Text v, Text s) { o.max_restarts = number(v, 0, 1'000'000, s); }},
    {"file", "o", "FILE", "where to write; default: standard output",
     [](Options& o, Text v, Text s) { o.file = line(v, s); }},
};

constexpr CommandOption<Options> kOfSlurm[] = {
    {"launcher", "", "NAME", "run: an agent a node (default); srun: a task a rank",
     [](Options& o, Text v, Text s) {
       o.launcher = one_of({"run", "srun"}, v, s);
     }},
    {"time", "", "LIMIT", "time limit as Slurm writes it, 4:00:00",
     [](Options& o, Text v, Text s) { o.time = time_limit(v, s); }},
    {"partition", "", "NAME", "partition (queue)",
     [](Options& o, Text v, Text s) { o.partition = plain(v, s, ","); }},
    {"account", "", "NAME", "account that the job is charged to",
     [](Options& o, Text v, Text s) { o.account = plain(v, s); }},
    {"qos", "", "NAME", "quality of service",
     [](Options& o, Text v, Text s) { o.qos = plain(v, s); }},
    {"exclusive", "", "", "no other job on the nodes",
     [](Options& o, Text v, Text s) { o.exclusive = flag(v, s); }},
    {"log", "output", "FILE", "output of the job, default %x_%j.out (name, number)",
     [](Options& o, Text v, Text s) { o.log = plain(v, s, "/%"); }},
    {"container_image", "image", "IMAGE", "the job runs in this container, by pyxis and enroot",
     [](Options& o, Text v, Text s) { o.image = line(v, s); }},
    {"container_mounts", "", "A:B,...", "directories of the host in the container",
     [](Options& o, Text v, Text s) { o.container_mounts.push_back(line(v, s)); }},
    {"container_mount_home", "", "", "the home directory in the container, too",
     [](Options& o, Text v, Text s) { o.container_mount_home = flag(v, s); }},
    {"requeue", "", "yes|no", "the job comes back after its time limit and a lost node",
     [](Options& o, Text v, Text s) { o.requeue = flag(v, s); }},
    {"save_margin", "", "SECONDS",
     "it saves so long before its limit, default 120; Slurm may be 60 s late",
     [](Options& o, Text v, Text s) { o.save_margin = number(v, 10, 65'535, s); }},
    {"auto_resume", "", "WHEN",
     "on, off or auto: srun's --auto-resume=1 of SageMaker HyperPod, auto: where that is",
     [](Options& o, Text v, Text s) {
       o.auto_resume = one_of({"auto", "on", "off"}, v, s);
     }},
    {"sbatch", "", kOtherProgramsOption, "a further line of the script, --sbatch=--constraint=a100",
     [](Options& o, Text v, Text s) {
       if (!v.starts_with("-")) throw UsageError(cat(s, " takes an option of sbatch: '", v, "'"));
       o.sbatch.push_back(line(v, s));
     }},
};

constexpr CommandOption<Options> kOfKubernetes[] = {
    {"kind", "", "KIND",
     "job (Indexed Job and Service), jobset, pytorchjob or trainjob; default job",
     [](Options& o, Text v, Text s) {
       o.kind = one_of({"job", "jobset", "pytorchjob", "trainjob"}, lower(v), s);
     }},
    {"image", "container_image", "IMAGE", "container with tessera in it",
     [](Options& o, Text v, Text s) { o.image = plain(v, s, "/:@[]"); }},
    {"pull_policy", "", "WHEN", "Always, IfNotPresent (default) or Never",
     [](Options& o, Text v, Text s) {
       o.pull_policy = one_of({"Always", "IfNotPresent", "Never"}, v, s);
     }},
    {"namespace", "", "NAME", "namespace of all objects",
     [](Options& o, Text v, Text s) { o.name_space = plain(v, s); }},
    {"memory", "", "QUANTITY", "memory a node, 64Gi",
     [](Options& o, Text v, Text s) { o.memory = quantity(v, s); }},
    {"shm_size", "", "QUANTITY",
     "of /dev/shm, through which ranks of a node exchange tensors; default 16Gi",
     [](Options& o, Text v, Text s) { o.shm_size = quantity(v, s); }},
    {"efa_per_node", "", "N", "EFA interfaces a node; default: those of the type",
     [](Options& o, Text v, Text s) { o.efa_per_node = number(v, 0, 64, s); }},
    {"claim", "", "NAME", "PersistentVolumeClaim that all pods share, for checkpoints",
     [](Options& o, Text v, Text s) { o.claim = plain(v, s); }},
    {"claim_size", "", "QUANTITY", "the claim is rendered, too, of this size",
     [](Options& o, Text v, Text s) { o.claim_size = quantity(v, s); }},
    {"storage_class", "", "NAME", "storage class of the rendered claim",
     [](Options& o, Text v, Text s) { o.storage_class = plain(v, s); }},
    {"mount", "", "PATH", "where the claim is in the pods, default /checkpoints",
     [](Options& o, Text v, Text s) {
       o.mount = line(v, s);
       if (v[0] != '/') throw UsageError(cat(s, " must be an absolute path: it is '", v, "'"));
     }},
    {"secret", "", "NAME", "Secret with the job's token; default NAME-token",
     [](Options& o, Text v, Text s) { o.secret = plain(v, s); }},
    {"grace", "", "SECONDS",
     "time of a pod between SIGTERM and SIGKILL, for a last step and its save; default 120",
     [](Options& o, Text v, Text s) { o.grace = number(v, 1, 86'400, s); }},
    {"elastic", "", "",
     "pytorchjob: an elastic policy, by which pods meet at worker 0, or at --etcd_image",
     [](Options& o, Text v, Text s) { o.elastic = flag(v, s); }},
    {"min_nodes", "", "N",
     "with --elastic: so few pods still go on with the job; default: all of --nodes",
     [](Options& o, Text v, Text s) { o.min_nodes = number(v, 1, 65'536, s); }},
    {"etcd_image", "", "IMAGE",
     "a Service and a Deployment of etcd, too; with --elastic the pods meet there",
     [](Options& o, Text v, Text s) { o.etcd_image = plain(v, s, "/:@[]"); }},
    {"runtime", "", "NAME", "trainjob: its ClusterTrainingRuntime, default torch-distributed",
     [](Options& o, Text v, Text s) { o.runtime = plain(v, s); }},
};

constexpr UnknownOptionHint kUnknownOption{
    "",
    " Options of the training come after its command: ... render [OPTIONS] train [ITS OPTIONS]"};

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

std::vector<CommandOption<ClusterOptions>> cluster_options(ClusterSystem system) {
  std::vector<CommandOption<ClusterOptions>> table(std::begin(kOfBoth), std::end(kOfBoth));
  if (system == ClusterSystem::kSlurm) {
    table.insert(table.end(), std::begin(kOfSlurm), std::end(kOfSlurm));
  } else {
    table.insert(table.end(), std::begin(kOfKubernetes), std::end(kOfKubernetes));
  }
  return table;
}

ClusterOptions parse_cluster_options(std::span<const std::string> words, ClusterSystem system) {
  Options o;
  const auto table = cluster_options(system);
  while (!words.empty() && is_option(words[0])) {
    take_option<Options>(table, words, o, kUnknownOption);
  }
  o.help = !words.empty() && is_help(words[0]);
  if (o.help) return o;
  if (!words.empty() && words[0] == "--") words = words.subspan(1);
  o.command.assign(words.begin(), words.end());
  if (o.command.empty()) {
    throw UsageError("nothing to run: end the line with the command of a rank: train [OPTIONS]");
  }
  for (const std::string& word : o.command)
    line(word.empty() ? "x" : word, "a word of the command");
  if (!o.instance_type.empty()) find_instance_type(o.instance_type);  // refuses an unknown one
  system == ClusterSystem::kSlurm ? check_slurm(o) : check_kubernetes(o);
  return o;
}

}  // namespace tessera
