#include <cstdio>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/kubernetes_manifest.h"
#include "launch/worker_command.h"
#include "options/option_table.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera k8s render [OPTIONS] train [OPTIONS of train]

Writes the objects of a job for `kubectl apply`: pods, one a node, whose first process is an agent (tessera run)
that starts the node's ranks. --kind says by whom they are run: Kubernetes itself (job), JobSet, or the training
operators of Kubeflow (pytorchjob, trainjob).

Examples
  tessera k8s render --image my/tessera:1 --nodes 2 --nproc_per_node 4 --claim checkpoints --claim_size 100Gi \
      train --dataset /checkpoints/corpus --checkpoint_dir /checkpoints/run \
      --resume_from_checkpoint /checkpoints/run > job.yaml
  tessera k8s render --kind pytorchjob --image my/tessera:1 --nodes 4 --gpus_per_node 8 --instance_type \
      p5.48xlarge --name llama --file llama.yaml train ...

Options
)";

// Pods that all come back are another job, which must be told to go on.
void warn_of_restarts(const ClusterOptions& options) {
  if (options.command[0] != "train") return;
  for (const std::string& word : options.command) {
    if (!word.starts_with("--")) continue;
    std::string name =
        word.substr(2, word.find('=') == std::string::npos ? word.npos : word.find('=') - 2);
    const OptionRow* row = find_option(name);
    if (row && (row->name == "resume_from_checkpoint" || row->name == "config")) return;
  }
  TESSERA_WARN(
      "without --resume_from_checkpoint a job whose pods were all replaced does not go on with its "
      "checkpoints: give it the directory of --checkpoint_dir");
}

}  // namespace

int k8s_command(std::span<const std::string> arguments) {
  std::string action = arguments.empty() ? "" : arguments[0];
  ClusterOptions options;
  if (is_help(action)) {
    options.help = true;
  } else if (action == "render") {
    options = parse_cluster_options(arguments.subspan(1), ClusterSystem::kKubernetes);
  } else {
    throw UsageError("k8s takes render: see tessera k8s --help");
  }
  if (options.help) {
    const auto table = cluster_options(ClusterSystem::kKubernetes);
    std::fputs(cat(kHelp, option_lines(texts(table))).c_str(), stdout);
    return 0;
  }
  check_worker_program(options.command[0], command_names(), false);
  check_worker_options(options.command);
  warn_of_restarts(options);
  std::string manifest = kubernetes_manifest(options);
  if (options.file.empty()) {
    std::fputs(manifest.c_str(), stdout);
  } else {
    write_file_atomic(options.file, manifest);
  }
  return 0;
}

}  // namespace tessera
