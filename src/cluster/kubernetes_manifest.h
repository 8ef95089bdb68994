#pragma once
#include <string>

#include "cluster/cluster_options.h"

namespace tessera {

// The objects of a job for `kubectl apply`, as YAML: what `tessera k8s render` writes. One of
//
// - job: an Indexed Job (batch/v1), with a headless Service where it has several nodes;
// - jobset: a JobSet (jobset.x-k8s.io/v1alpha2);
// - pytorchjob: a PyTorchJob (kubeflow.org/v1) with a master and workers, or of workers alone with
//   an elastic policy;
// - trainjob: a TrainJob (trainer.kubeflow.org/v1alpha1) of a runtime that the cluster has;
//
// and, if they are asked for, the claim of the checkpoints and etcd. A pod is a node: `tessera run`
// is its first process.
std::string kubernetes_manifest(const ClusterOptions& options);

}  // namespace tessera
