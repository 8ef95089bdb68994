#pragma once
#include <string>

#include "cluster/cluster_options.h"
#include "cluster/yaml_text.h"

namespace tessera {

// The parts of a pod that the kinds of jobs have in common. `kind` of the options decides what the
// job's own controller says to the pods, and what has to be said here.

// The name that the job's controller wants the container to have.
std::string container_name(const ClusterOptions& options);
// The field `command` of the container.
void write_command(YamlText& yaml, const ClusterOptions& options);
// The items of its `env`. `first_pod`: where the pods meet, empty where the controller says it.
void write_variables(YamlText& yaml, const ClusterOptions& options, const std::string& first_pod);
bool asks_for_resources(const ClusterOptions& options);
// The fields `requests` and `limits`.
void write_resources(YamlText& yaml, const ClusterOptions& options);
// The items of `volumes` and of `volumeMounts`.
void write_volumes(YamlText& yaml, const ClusterOptions& options);
void write_mounts(YamlText& yaml, const ClusterOptions& options);
// A pod's `nodeSelector`, where there is one.
void write_node_selector(YamlText& yaml, const ClusterOptions& options);

// A whole `template` of pods: `restart` is its restart policy, "" where that stands elsewhere.
void write_pod_template(YamlText& yaml, const ClusterOptions& options, const std::string& restart,
                        const std::string& first_pod, const std::string& subdomain);

}  // namespace tessera
