#pragma once
#include <nlohmann/json_fwd.hpp>

namespace tessera {

// What a host offers to a training process, as this process sees it, and never throws for what is
// not there:
//   {"host": "node1", "cores": 96, "usable_cores": 8, "memory": BYTES, "available_memory": BYTES,
//    "memory_limit": BYTES or null, "locked_memory_limit": BYTES or null, "open_files_limit": N,
//    "huge_pages": "madvise", "shared_memory": {"bytes": N, "free": N} or null,
//    "interfaces": [{"name": "eth0", "address": "10.0.0.1", "up": true, "gbit": 25 or null}, ...],
//    "gpus": N, "gpu_driver": "535.1" or "", "nccl": "2.18.5" or "", "nccl_plugin": "path" or "",
//    "efa_devices": N}
// null for a limit is none. Limits are those of the process and of its cgroups (versions 1 and 2).
nlohmann::json host_facts();

}  // namespace tessera
