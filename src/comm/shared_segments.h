#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "comm/local_memory.h"
#include "comm/peer_mesh.h"
#include "runtime/memory.h"

namespace tessera {

// Memory that the processes of a host share: files without a name (memfd), passed over their Unix
// sockets and mapped by all of them, so that the last process takes them along however it ends.
// Segment 0 of each rank holds its counters and its staging area, the others are allocate()'s.
class SharedSegments final : public LocalMemory {
 public:
  // `local`: for every rank whether it is on this host. Returns when the first segments of all have
  // arrived. DeviceError where there is no memory.
  SharedSegments(PeerMesh& mesh, std::vector<bool> local);

  bool holds(int rank) const override { return local_[static_cast<size_t>(rank)]; }
  ControlPage& control(int rank) override;
  std::byte* staging(int rank) override;
  Location find(const void* data, int64_t bytes) override;
  const std::byte* resolve(int rank, const Location& location, int64_t bytes) override;

  // Zeroed memory that peers read in place. It must not outlive this object. DeviceError when the
  // system (or the limit of the container) has no such amount.
  HostBuffer allocate(int64_t bytes);

 private:
  class Mapping {
   public:
    Mapping(const FileDescriptor& fd, int64_t bytes, int protection);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    // Gives the pages back; they are mapped again, unchanged, when they are touched.
    void forget_pages();
    std::byte* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

   private:
    std::byte* data_;
    int64_t bytes_;
  };
  Mapping& mapping(int rank, int64_t segment);
  std::byte* add_own(int64_t segment, int64_t bytes);
  void drop_own(int64_t segment);
  void unmap_dropped();

  PeerMesh& mesh_;
  std::vector<bool> local_;
  std::mutex mutex_;  // of own_, which the program's threads change
  std::map<int64_t, Mapping> own_;
  int64_t next_segment_ = 1;
  // Of the peers, by rank and number: touched by the communication thread alone.
  std::map<std::pair<int, int64_t>, Mapping> peers_;
  int64_t read_ = 0;  // bytes of theirs since their pages were last given back
  // Of every rank on this host: the beginning of segment 0.
  std::vector<std::byte*> first_;
};

}  // namespace tessera
