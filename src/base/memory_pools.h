#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// An amount of memory that this process can run out of, perhaps together with others.
struct MemoryPool {
  std::string id;         // equal in all processes that draw from it; empty: this one alone
  std::string name;       // "cgroup /job_7 (memory.max)", for messages
  int64_t available = 0;  // bytes that are left now
};

// The pools of this process as the system states them:
//   the machine: MemAvailable of /proc/meminfo;
//   every cgroup from the process's own upwards that has a limit (v2: memory.max and memory.high;
//   v1: memory.limit_in_bytes), less what is used in it and is not page cache of files, which the
//   kernel takes back when it needs to;
//   limits of the process itself (ulimit -v, ulimit -d).
// What is not there or cannot be read is left out: then nothing is known, and nothing refused.
// `root` is where /proc and the mount points of the cgroups are looked for.
std::vector<MemoryPool> memory_pools(const std::filesystem::path& root = "/");

}  // namespace tessera
