#include "cluster/kubernetes_manifest.h"

#include "base/exit_status.h"
#include "base/text.h"
#include "cluster/kubernetes_pod.h"

namespace tessera {
namespace {

// How often a job goes on after pods of it have failed: with one, all of them do, and each is
// counted.
constexpr int kReplacements = 10;

// Each job has its own: what ends one takes nothing from another.
std::string etcd_name(const ClusterOptions& o) { return cat(o.job_name, "-etcd"); }

void write_head(YamlText& yaml, const std::string& version, const std::string& kind,
                const std::string& name, const ClusterOptions& o) {
  yaml.field("apiVersion", version);
  yaml.field("kind", kind);
  auto metadata = yaml.inside("metadata");
  yaml.field("name", name);
  if (!o.name_space.empty()) yaml.field("namespace", o.name_space);
  auto labels = yaml.inside("labels");
  yaml.field("app", name == etcd_name(o) ? name : o.job_name);
}

void write_claim(YamlText& yaml, const ClusterOptions& o) {
  write_head(yaml, "v1", "PersistentVolumeClaim", o.claim, o);
  auto spec = yaml.inside("spec");
  {
    auto modes = yaml.inside("accessModes", "all pods write checkpoints");
    yaml.value("ReadWriteMany");
  }
  if (!o.storage_class.empty()) yaml.field("storageClassName", o.storage_class);
  auto resources = yaml.inside("resources");
  auto requests = yaml.inside("requests");
  yaml.field("storage", o.claim_size);
}

void write_etcd(YamlText& yaml, const ClusterOptions& o) {
  {
    write_head(yaml, "v1", "Service", etcd_name(o), o);
    auto spec = yaml.inside("spec");
    {
      auto selector = yaml.inside("selector");
      yaml.field("app", etcd_name(o));
    }
    auto ports = yaml.inside("ports");
    auto item = yaml.item();
    yaml.field("name", "client");
    yaml.number("port", 2379);
  }
  yaml.next_document();
  write_head(yaml, "apps/v1", "Deployment", etcd_name(o), o);
  auto spec = yaml.inside("spec");
  yaml.number("replicas", 1);
  {
    auto selector = yaml.inside("selector");
    auto labels = yaml.inside("matchLabels");
    yaml.field("app", etcd_name(o));
  }
  auto pods = yaml.inside("template");
  {
    auto metadata = yaml.inside("metadata");
    auto labels = yaml.inside("labels");
    yaml.field("app", etcd_name(o));
  }
  auto pod = yaml.inside("spec");
  auto containers = yaml.inside("containers");
  auto item = yaml.item();
  yaml.field("name", "etcd");
  yaml.field("image", o.etcd_image);
  {
    auto command = yaml.inside("command");
    const std::string address = cat("--advertise-client-urls=http://", etcd_name(o), ":2379");
    for (const char* word :
         {"etcd", "--data-dir=/var/lib/etcd", "--listen-client-urls=http://0.0.0.0:2379",
          address.c_str(), "--initial-cluster-state=new"})
      yaml.value(word);
  }
  auto ports = yaml.inside("ports");
  auto port = yaml.item();
  yaml.number("containerPort", 2379);
}

void write_service(YamlText& yaml, const ClusterOptions& o) {
  yaml.comment("Gives the pods their names, by which they find the first one.");
  write_head(yaml, "v1", "Service", o.job_name, o);
  auto spec = yaml.inside("spec");
  yaml.field("clusterIP", "None");
  yaml.boolean("publishNotReadyAddresses", true);
  auto selector = yaml.inside("selector");
  yaml.field("app", o.job_name);
}

// The fields of a Job's spec in front of its pods.
void write_job_fields(YamlText& yaml, const ClusterOptions& o, int backoff_limit) {
  yaml.field("completionMode", "Indexed");
  yaml.number("completions", o.nodes);
  yaml.number("parallelism", o.nodes, o.nodes > 1 ? "a pod a node; also change PET_NNODES" : "");
  yaml.number("backoffLimit", backoff_limit,
              "failed pods that are replaced: one that fails ends the others");
  auto policy = yaml.inside("podFailurePolicy");
  auto rules = yaml.inside("rules");
  {
    auto item = yaml.item();
    yaml.field("action", "FailJob", "a wrong command line stays one");
    auto codes = yaml.inside("onExitCodes");
    yaml.field("containerName", container_name(o));
    yaml.field("operator", "In");
    auto values = yaml.inside("values");
    yaml.value(int64_t{kUsageStatus});
  }
  if (backoff_limit == 0) return;
  auto item = yaml.item();
  yaml.field("action", "Ignore", "pods that the cluster has moved elsewhere");
  auto conditions = yaml.inside("onPodConditions");
  auto condition = yaml.item();
  yaml.field("type", "DisruptionTarget");
}

void write_job(YamlText& yaml, const ClusterOptions& o) {
  bool several = o.nodes > 1;
  if (several) {
    write_service(yaml, o);
    yaml.next_document();
  }
  write_head(yaml, "batch/v1", "Job", o.job_name, o);
  auto spec = yaml.inside("spec");
  write_job_fields(yaml, o, kReplacements * o.nodes);
  write_pod_template(yaml, o, "Never", several ? cat(o.job_name, "-0.", o.job_name) : "",
                     several ? o.job_name : "");
}

void write_jobset(YamlText& yaml, const ClusterOptions& o) {
  write_head(yaml, "jobset.x-k8s.io/v1alpha2", "JobSet", o.job_name, o);
  auto spec = yaml.inside("spec");
  {
    auto network = yaml.inside("network");
    yaml.boolean("enableDNSHostnames", true);
    yaml.boolean("publishNotReadyAddresses", true);
  }
  {
    auto policy = yaml.inside("failurePolicy");
    yaml.number("maxRestarts", 10, "of all pods together, after one has failed");
  }
  auto jobs = yaml.inside("replicatedJobs");
  auto item = yaml.item();
  yaml.field("name", "node");
  yaml.number("replicas", 1);
  auto job = yaml.inside("template");
  auto inner = yaml.inside("spec");
  write_job_fields(yaml, o, 0);
  std::string first = o.nodes > 1 ? cat(o.job_name, "-node-0-0.", o.job_name) : "";
  write_pod_template(yaml, o, "Never", first, "");
}

void write_replica(YamlText& yaml, const ClusterOptions& o, const char* name, int replicas) {
  auto replica = yaml.inside(name);
  yaml.number("replicas", replicas);
  yaml.field("restartPolicy", "OnFailure");
  write_pod_template(yaml, o, "", "", "");
}

void write_pytorchjob(YamlText& yaml, const ClusterOptions& o) {
  write_head(yaml, "kubeflow.org/v1", "PyTorchJob", o.job_name, o);
  auto spec = yaml.inside("spec");
  if (o.elastic) {
    auto policy = yaml.inside("elasticPolicy");
    yaml.field("rdzvBackend", o.etcd_image.empty() ? "c10d" : "etcd");
    if (!o.etcd_image.empty()) {
      yaml.field("rdzvHost", etcd_name(o));
      yaml.number("rdzvPort", 2379);
    }
    yaml.field("rdzvId", o.job_name);
    yaml.number("minReplicas", o.min_nodes.value_or(o.nodes));
    yaml.number("maxReplicas", o.nodes);
    yaml.number("maxRestarts", o.max_restarts, "of the ranks, by the agents");
    yaml.number("nProcPerNode", o.nproc_per_node);
  } else {
    yaml.field("nprocPerNode", cat(o.nproc_per_node));
  }
  {
    auto policy = yaml.inside("runPolicy");
    yaml.field("cleanPodPolicy", "Running");
    yaml.number("backoffLimit", kReplacements * o.nodes, "restarts of all pods");
  }
  auto replicas = yaml.inside("pytorchReplicaSpecs");
  if (o.elastic) return write_replica(yaml, o, "Worker", o.nodes);
  write_replica(yaml, o, "Master", 1);
  if (o.nodes > 1) write_replica(yaml, o, "Worker", o.nodes - 1);
}

// What a TrainJob does not say of its pods is said by patches of the runtime's.
void write_runtime_patches(YamlText& yaml, const ClusterOptions& o) {
  auto patches = yaml.inside("runtimePatches");
  auto patch = yaml.item();
  yaml.field("manager", "tessera");
  auto runtime = yaml.inside("trainingRuntimeSpec");
  auto jobset = yaml.inside("template");
  auto jobset_spec = yaml.inside("spec");
  auto jobs = yaml.inside("replicatedJobs");
  auto job = yaml.item();
  yaml.field("name", "node");
  auto job_template = yaml.inside("template");
  auto job_spec = yaml.inside("spec");
  auto pods = yaml.inside("template");
  auto pod = yaml.inside("spec");
  yaml.comment(
      "Its time between SIGTERM and SIGKILL is that of the runtime, 30 s unless it says another:");
  yaml.comment("give it terminationGracePeriodSeconds for a last step and its save.");
  write_node_selector(yaml, o);
  {
    auto containers = yaml.inside("containers");
    auto item = yaml.item();
    yaml.field("name", container_name(o));
    auto mounts = yaml.inside("volumeMounts");
    write_mounts(yaml, o);
  }
  auto volumes = yaml.inside("volumes");
  write_volumes(yaml, o);
}

void write_trainjob(YamlText& yaml, const ClusterOptions& o) {
  write_head(yaml, "trainer.kubeflow.org/v1alpha1", "TrainJob", o.job_name, o);
  auto spec = yaml.inside("spec");
  {
    auto runtime = yaml.inside("runtimeRef");
    yaml.field("name", o.runtime);
  }
  {
    auto trainer = yaml.inside("trainer");
    yaml.field("image", o.image);
    write_command(yaml, o);
    yaml.number("numNodes", o.nodes);
    yaml.number("numProcPerNode", o.nproc_per_node);
    {
      auto variables = yaml.inside("env");
      write_variables(yaml, o, "");
    }
    if (asks_for_resources(o)) {
      auto resources = yaml.inside("resourcesPerNode");
      write_resources(yaml, o);
    }
  }
  write_runtime_patches(yaml, o);
}

void write_introduction(YamlText& yaml, const ClusterOptions& o) {
  std::string secret = o.secret.empty() ? cat(o.job_name, "-token") : o.secret;
  std::string space = o.name_space.empty() ? "" : cat(" -n ", o.name_space);
  yaml.comment(
      "Written by `tessera k8s render`. Once, the secret by which the pods recognise each other:");
  yaml.comment(cat("  kubectl create secret generic ", secret, space,
                   " --from-literal=token=\"$(openssl rand -hex 32)\""));
  yaml.comment(
      "Then `kubectl apply -f` starts the job, and `kubectl delete -f` has it save and ends it.");
  if (o.claim.empty()) {
    yaml.comment(
        "There is no claim: checkpoints go with the pods. Give --claim NAME, and save below its "
        "--mount.");
  }
  yaml.comment(
      "There are no probes: agents notice what is lost, and ranks what hangs. For some train "
      "serves /healthz and /readyz with --http_port and --http_address 0.0.0.0.");
}

}  // namespace

std::string kubernetes_manifest(const ClusterOptions& o) {
  YamlText yaml;
  write_introduction(yaml, o);
  if (!o.claim_size.empty()) {
    write_claim(yaml, o);
    yaml.next_document();
  }
  if (!o.etcd_image.empty()) {
    write_etcd(yaml, o);
    yaml.next_document();
  }
  if (o.kind == "jobset") {
    write_jobset(yaml, o);
  } else if (o.kind == "pytorchjob") {
    write_pytorchjob(yaml, o);
  } else if (o.kind == "trainjob") {
    write_trainjob(yaml, o);
  } else {
    write_job(yaml, o);
  }
  return yaml.text();
}

}  // namespace tessera
