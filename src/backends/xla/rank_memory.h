#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "runtime/memory.h"

namespace tessera::xla {

// Memory of a rank that the first rank of its job, another process of this host, can map: a file
// without a name (memfd), which goes with the last process that has it. Of a job of one rank it is
// plain memory.
class RankMemory {
 public:
  explicit RankMemory(bool shared);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  // Zeroed; DeviceError where there is no memory. Must not outlive this object.
  std::byte* allocate(int64_t bytes);
  // What MappedMemory::map() takes, of memory that allocate() gave.
  std::string place(const std::byte* data) const;

 private:
  bool shared_;
  int file_ = -1;
  int64_t end_ = 0;  // of the file
  struct Part {
    HostBuffer buffer;
    int64_t offset = 0;  // in the file
  };
  std::map<const std::byte*, Part> parts_;
};

// Memory of other processes, mapped here; each place once.
class MappedMemory {
 public:
  // DeviceError where the other process cannot be looked into.
  std::byte* map(const std::string& place);

 private:
  std::map<std::string, HostBuffer> mapped_;
};

}  // namespace tessera::xla
