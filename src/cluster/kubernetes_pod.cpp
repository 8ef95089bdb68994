#include "cluster/kubernetes_pod.h"

#include "base/text.h"
#include "cluster/instance_types.h"

namespace tessera {
namespace {

void write_variable(YamlText& yaml, const std::string& name, const std::string& value) {
  auto item = yaml.item();
  yaml.field("name", name);
  yaml.field("value", value);
}

void write_variable_of_pod(YamlText& yaml, const std::string& name, const std::string& path) {
  auto item = yaml.item();
  yaml.field("name", name);
  auto from = yaml.inside("valueFrom");
  auto reference = yaml.inside("fieldRef");
  yaml.field("fieldPath", path);
}

// Its operators set PET_NPROC_PER_NODE from a field of the job.
bool counts_ranks_itself(const ClusterOptions& o) {
  return o.kind == "pytorchjob" || o.kind == "trainjob";
}

int efa_of(const ClusterOptions& o) {
  if (o.efa_per_node) return *o.efa_per_node;
  return o.instance_type.empty() ? 0 : find_instance_type(o.instance_type).efa;
}

// Of a command Kubernetes replaces $(NAME) by a variable, and $$ by $.
std::string literal(std::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    const bool read = i + 1 < word.size() && (word[i + 1] == '$' || word[i + 1] == '(');
    if (word[i] == '$' && read) text += '$';
    text += word[i];
  }
  return text;
}

}  // namespace

std::string container_name(const ClusterOptions& o) {
  return o.kind == "pytorchjob" ? "pytorch" : o.kind == "trainjob" ? "node" : "tessera";
}

void write_command(YamlText& yaml, const ClusterOptions& o) {
  auto list = yaml.inside("command");
  yaml.value("tessera");
  yaml.value("run");
  if (!counts_ranks_itself(o)) yaml.value(cat("--nproc_per_node=", o.nproc_per_node));
  if (o.max_restarts > 0 && !o.elastic) yaml.value(cat("--max_restarts=", o.max_restarts));
  for (const std::string& word : o.command) yaml.value(literal(word));
}

void write_variables(YamlText& yaml, const ClusterOptions& o, const std::string& first_pod) {
  {
    auto item = yaml.item();
    yaml.field("name", "TESSERA_JOB_TOKEN");
    auto from = yaml.inside("valueFrom");
    auto reference = yaml.inside("secretKeyRef");
    yaml.field("name", o.secret.empty() ? cat(o.job_name, "-token") : o.secret);
    yaml.field("key", "token");
  }
  if (!first_pod.empty()) {
    write_variable(yaml, "PET_NNODES", cat(o.nodes));
    write_variable_of_pod(yaml, "PET_NODE_RANK",
                          "metadata.annotations['batch.kubernetes.io/job-completion-index']");
    write_variable(yaml, "PET_MASTER_ADDR", first_pod);
    write_variable(yaml, "PET_MASTER_PORT", "29500");
  }
  // The first pod serves the job's store there, whether or not its name resolves already.
  if (o.nodes > 1) write_variable_of_pod(yaml, "PET_LOCAL_ADDR", "status.podIP");
  if (o.instance_type.empty()) return;
  for (const auto& [name, value] : network_variables(find_instance_type(o.instance_type)))
    write_variable(yaml, name, value);
}

bool asks_for_resources(const ClusterOptions& o) {
  return o.cpus || !o.memory.empty() || o.gpus_per_node > 0 || efa_of(o) > 0;
}

void write_resources(YamlText& yaml, const ClusterOptions& o) {
  for (const char* field : {"requests", "limits"}) {
    auto level = yaml.inside(field);
    if (o.cpus) yaml.field("cpu", cat(*o.cpus));
    if (!o.memory.empty()) yaml.field("memory", o.memory);
    if (o.gpus_per_node > 0) yaml.field("nvidia.com/gpu", cat(o.gpus_per_node));
    if (efa_of(o) > 0) yaml.field("vpc.amazonaws.com/efa", cat(efa_of(o)));
  }
}

void write_volumes(YamlText& yaml, const ClusterOptions& o) {
  {
    auto item = yaml.item();
    yaml.field("name", "shm");
    auto directory = yaml.inside("emptyDir", "counts as memory of the pod");
    yaml.field("medium", "Memory");
    yaml.field("sizeLimit", o.shm_size);
  }
  if (o.claim.empty()) return;
  auto item = yaml.item();
  yaml.field("name", "checkpoints");
  auto claim = yaml.inside("persistentVolumeClaim");
  yaml.field("claimName", o.claim);
}

void write_mounts(YamlText& yaml, const ClusterOptions& o) {
  {
    auto item = yaml.item();
    yaml.field("name", "shm");
    yaml.field("mountPath", "/dev/shm");
  }
  if (o.claim.empty()) return;
  auto item = yaml.item();
  yaml.field("name", "checkpoints");
  yaml.field("mountPath", o.mount);
}

void write_node_selector(YamlText& yaml, const ClusterOptions& o) {
  if (o.instance_type.empty()) return;
  auto selector = yaml.inside("nodeSelector");
  yaml.field("node.kubernetes.io/instance-type", o.instance_type);
}

void write_pod_template(YamlText& yaml, const ClusterOptions& o, const std::string& restart,
                        const std::string& first_pod, const std::string& subdomain) {
  auto pods = yaml.inside("template");
  {
    auto metadata = yaml.inside("metadata");
    auto labels = yaml.inside("labels");
    yaml.field("app", o.job_name);
  }
  auto spec = yaml.inside("spec");
  if (!restart.empty()) yaml.field("restartPolicy", restart);
  yaml.number("terminationGracePeriodSeconds", o.grace,
              "from SIGTERM, at which it saves, to SIGKILL");
  if (!subdomain.empty()) yaml.field("subdomain", subdomain);
  write_node_selector(yaml, o);
  {
    auto containers = yaml.inside("containers");
    auto item = yaml.item();
    yaml.field("name", container_name(o));
    yaml.field("image", o.image);
    yaml.field("imagePullPolicy", o.pull_policy);
    write_command(yaml, o);
    {
      auto variables = yaml.inside("env");
      write_variables(yaml, o, first_pod);
    }
    if (asks_for_resources(o)) {
      auto resources = yaml.inside("resources");
      write_resources(yaml, o);
    }
    auto mounts = yaml.inside("volumeMounts");
    write_mounts(yaml, o);
  }
  auto volumes = yaml.inside("volumes");
  write_volumes(yaml, o);
}

}  // namespace tessera
