#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// What a type of virtual machine of AWS brings for jobs on several of them.
struct InstanceType {
  std::string_view name;
  int gpus;
  int efa;    // interfaces of the Elastic Fabric Adapter that a node has
  bool rdma;  // whether GPUs send through them by themselves
};

// UsageError with the nearest name for an unknown one.
const InstanceType& find_instance_type(std::string_view name);

// Variables by which libfabric and NCCL use what the type has; those of NCCL alone where there are
// GPUs and no EFA, none where there are neither.
std::vector<std::pair<std::string, std::string>> network_variables(const InstanceType& type);

}  // namespace tessera
