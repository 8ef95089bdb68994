#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/kernels/parameters.h"
#include "runtime/control.h"

namespace tessera::cuda {

// Memory of other ranks of this host, as kernels of this rank read it: by CUDA IPC where they are
// other processes, by their own addresses where they are threads of this one.
//
// A block that others reach is freed only when all have given it up, so not when its owner frees it
// but at the next share(), or with this. Where the job has failed it stays to the end of the
// process: others may still read.
class PeerMemory {
 public:
  // `hosts`: by rank, what tells their machines apart. All ranks of the job make theirs.
  PeerMemory(CudaDevice& device, Control& control, std::vector<std::string> hosts);
  // Waits for the other ranks, unless the job has failed.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // A block of this rank's memory, and ranks, this one among them, that read each other's blocks.
  struct Use {
    std::vector<int> ranks;
    std::byte* begin = nullptr;
    int64_t bytes = 0;
  };
  // All ranks of the job call it at the same time, for the same uses in the same order, each of its
  // own blocks and group. `layout`: a hash of where in the blocks they read, which has to be the
  // same place on all. Whether blocks are reached is decided for all ranks of a group alike: where
  // the ranks are on several hosts, or more than a kernel takes, or one cannot reach another's,
  // they are not, and the log says why.
  void share(const std::vector<Use>& uses, uint64_t layout);

  // Where the ranks have what this rank has at `own`, in their order; nothing where the block is
  // not reached.
  std::optional<Summands> of(const std::vector<int>& ranks, const void* own) const;

  // A block is about to be freed. True: it is kept until the other ranks have given it up.
  bool keeps(const void* memory) noexcept;

 private:
  struct Peer {
    std::byte* begin = nullptr;
    bool opened = false;  // to be closed
  };
  struct Block {
    int64_t bytes = 0;
    std::map<int, Peer> peers;  // by rank
  };
  struct Told;  // what a rank says of itself and of its blocks
  using Key = std::pair<std::vector<int>, std::byte*>;

  std::string tell(const std::vector<std::byte*>& blocks, uint64_t layout) const;
  // "" or why this rank does not reach the block.
  std::string reach(const Use& use, size_t block, const std::vector<Told>& told);
  std::byte* open(int rank, const Told& told, size_t block, Peer& peer);
  void decide(const Use& use, std::string_view reason);
  void close(Block& block) noexcept;
  void free_retired() noexcept;

  CudaDevice& device_;
  Control& control_;
  std::vector<std::string> hosts_;
  std::string process_;
  std::vector<GpuFacts> gpus_;  // that are shown to this process
  CUdevice own_ = 0;
  std::map<std::byte*, Block> blocks_;   // of this rank
  std::map<Key, bool> reached_;          // what has been decided
  std::map<std::byte*, Block> retired_;  // freed by this rank, reached by others
  std::set<CUdevice> held_, enabled_;    // of this process: whose contexts are held, are reached
  bool shares_ = false, told_ = false;
};

}  // namespace tessera::cuda
