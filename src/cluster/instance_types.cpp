#include "cluster/instance_types.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr InstanceType kTypes[] = {
    {"p3.2xlarge", 1, 0, false},     {"p3.8xlarge", 4, 0, false},
    {"p3.16xlarge", 8, 0, false},    {"p3dn.24xlarge", 8, 1, false},
    {"p4d.24xlarge", 8, 4, true},    {"p4de.24xlarge", 8, 4, true},
    {"p5.48xlarge", 8, 32, true},    {"p5e.48xlarge", 8, 32, true},
    {"p5en.48xlarge", 8, 16, true},  {"g4dn.xlarge", 1, 0, false},
    {"g4dn.2xlarge", 1, 0, false},   {"g4dn.4xlarge", 1, 0, false},
    {"g4dn.8xlarge", 1, 1, false},   {"g4dn.12xlarge", 4, 1, false},
    {"g4dn.16xlarge", 1, 1, false},  {"g4dn.metal", 8, 1, false},
    {"g5.xlarge", 1, 0, false},      {"g5.2xlarge", 1, 0, false},
    {"g5.4xlarge", 1, 0, false},     {"g5.8xlarge", 1, 1, false},
    {"g5.12xlarge", 4, 1, false},    {"g5.16xlarge", 1, 1, false},
    {"g5.24xlarge", 4, 1, false},    {"g5.48xlarge", 8, 1, false},
    {"c5n.18xlarge", 0, 1, false},   {"c6i.32xlarge", 0, 1, false},
    {"c7i.48xlarge", 0, 1, false},   {"hpc6a.48xlarge", 0, 1, false},
    {"hpc7a.96xlarge", 0, 2, false},
};

}  // namespace

const InstanceType& find_instance_type(std::string_view name) {
  // HyperPod writes ml.p5.48xlarge.
  std::string_view bare = name.starts_with("ml.") ? name.substr(3) : name;
  std::vector<std::string> names;
  for (const InstanceType& type : kTypes) {
    if (type.name == bare) return type;
    names.emplace_back(type.name);
  }
  std::string close = nearest(bare, names);
  throw UsageError(cat("--instance_type '", name, "' is not known",
                       close.empty() ? "." : cat("; did you mean ", close, "?"), " Known: ",
                       join(names, ", "), ". Leave it out, and set the variables that it needs"));
}

std::vector<std::pair<std::string, std::string>> network_variables(const InstanceType& type) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (type.efa > 0) {
    variables.emplace_back("FI_PROVIDER", "efa");
    // Huge pages of libfabric are not there in the children of a process that forks.
    variables.emplace_back("FI_EFA_USE_HUGE_PAGE", "0");
    if (type.rdma) {
      variables.emplace_back("FI_EFA_USE_DEVICE_RDMA", "1");
      variables.emplace_back("FI_EFA_FORK_SAFE", "1");
    }
  }
  if (type.gpus > 0) {
    if (type.efa > 0) variables.emplace_back("FI_EFA_SET_CUDA_SYNC_MEMOPS", "0");
    variables.emplace_back("NCCL_DEBUG", "WARN");
    variables.emplace_back("NCCL_SOCKET_IFNAME", "^docker,lo,veth");
  }
  return variables;
}

}  // namespace tessera
