#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_memory.h"
#include "backends/cuda/nccl_api.h"
#include "backends/cuda/peer_memory.h"
#include "backends/cuda/rank_progress.h"
#include "base/dtype.h"
#include "ir/marks.h"
#include "runtime/control.h"

namespace tessera::cuda {

// NVIDIA's library of exchanges between GPUs, as it is loaded.
class Nccl {
 public:
  // DeviceError if this machine has none.
  static const Nccl& get();
  std::string version() const;  // "2.28.9"
  const std::string& path() const { return library_.path(); }

#define TESSERA_MEMBER(result, library_name, own_name, parameters) \
  Entry<result parameters> own_name{#library_name};
  TESSERA_NCCL_FUNCTIONS(TESSERA_MEMBER)
  TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_MEMBER)  // ask found()
#undef TESSERA_MEMBER

 private:
  Nccl();
  Library library_;
};

// Exchanges between the GPUs of a job's ranks, through NCCL, enqueued on the device's current lane.
// Groups have a communicator for gathers and one for what is summed, so that neither waits for the
// other. Nothing blocks without a deadline: a rank that is lost, or does not come for `deadline`,
// ends all with a CommError that says so, and the exchanges that run are broken off.
class NcclCommunicator {
 public:
  // All ranks of the job make theirs at the same time. DeviceError where two of them have the same
  // GPU, which NCCL refuses.
  // `host` tells the rank's machine from those of others; empty: its name.
  NcclCommunicator(CudaDevice& device, Control& control, std::chrono::milliseconds deadline,
                   const std::string& host = {});
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // What NCCL uses between hosts, as far as it says so: "AWS Libfabric, provider efa", "IB",
  // "Socket". Empty on one host.
  const std::string& network() const { return network_; }
  int rank() const { return control_.rank(); }
  int world_size() const { return control_.world_size(); }

  struct Group {
    int size = 1, index = 0;  // this rank's place among them
    std::vector<int> ranks;   // of the job
    std::array<ncclComm*, 2> comms{};
  };
  // Of the groups into which the ranks of the job are divided, this rank's; made when it is first
  // asked for. All ranks make the same groups in the same order.
  const Group& make_group(const std::vector<std::vector<int>>& groups);

  // Counts in elements. `label` says what it is for, in messages.
  void all_gather(const Group& group, const void* part, void* whole, int64_t part_count,
                  DType dtype, const std::string& label);
  void reduce_scatter(const Group& group, const void* whole, void* part, int64_t part_count,
                      DType dtype, const std::string& label);
  void all_reduce(const Group& group, const void* from, void* to, int64_t count, DType dtype,
                  Reduction reduction, const std::string& label);
  void all_to_all(const Group& group, const void* from, void* to, int64_t part_count, DType dtype,
                  const std::string& label) {
    exchange_parts(group, from, part_count, to, part_count, dtype, label);
  }
  // The same of pieces of parts: part j of `from` begins at j * stride.
  void exchange_parts(const Group& group, const void* from, int64_t stride, void* to,
                      int64_t part_count, DType dtype, const std::string& label);

  // A communicator that exchanges of a group on a lane go through.
  static ncclComm* comm_of(const Group& group, Lane lane) {
    return group.comms[lane == Lane::kReduce ? 1 : 0];
  }
  // A block of the device's memory, and a communicator through which exchanges read or write it.
  struct MemoryUse {
    ncclComm* comm = nullptr;
    std::byte* begin = nullptr;
    int64_t bytes = 0;
    friend auto operator<=>(const MemoryUse&, const MemoryUse&) = default;
  };
  // Registers what is not registered yet, so that NCCL may work on it where it lies. To be called
  // by all ranks of the job at the same time, for memory that they use alike, before it is used.
  // Where one of them cannot, none does from then on, and the log says why. A block is deregistered
  // when the device frees it; communicators that are broken off take their registrations with them.
  void register_memory(const std::vector<MemoryUse>& uses);
  // Done on the current lane when all ranks of the group have got there: what they have put into
  // their memory before is there to be read, and what they have read may be written.
  void fence(const Group& group, const std::string& label);
  // From now on ranks may read the memory of others on their host. All ranks of the job call it.
  void reach_peers();
  // Null where they may not.
  PeerMemory* peers() { return peers_ ? &*peers_ : nullptr; }
  const DeviceBlock& fences() const { return fences_; }

  // Why memory is not registered, as all ranks know it once it was to be; "" where it is.
  const std::string& without_registration() const { return without_registration_; }

  // Throws what has gone wrong since, if anything; `waited`: how long somebody has been waiting for
  // the device. Any thread may ask.
  void check(double waited);
  // Of somebody who records exchanges in graphs: makes them forget those before exchanges are
  // broken off, which NCCL does not do while there are any. Called under the device's lock.
  void add_graphs(const void* owner, std::function<void()> forget);
  void remove_graphs(const void* owner) noexcept;

 private:
  static constexpr int64_t kFenceBytes = 64, kLanes = 4;
  void check_deadline(double waited);
  void begin_world();
  void split(int color, int key, ncclComm*& made);
  // Until a call that goes on behind the host has been taken: what has become of it.
  ncclResult taken(ncclComm* comm, ncclResult result);
  // The same; CommError where it has failed.
  void settle(ncclComm* comm, ncclResult result, const std::string& doing);
  ncclComm* comm_of(const Group& group) const;
  // "" where it is done.
  std::string register_one(const MemoryUse& use);
  void deregister(const std::function<bool(const MemoryUse&)>& which) noexcept;
  void check_whole() const;
  [[noreturn]] void fail(const std::string& what);
  [[noreturn]] void fail_by_nccl(const std::string& what);
  void break_off(const std::string& cause) noexcept;

  CudaDevice& device_;
  Control& control_;
  std::chrono::milliseconds deadline_;
  const Nccl& library_;
  // Of what any thread may ask for. Communicators go under the device's lock, too.
  mutable std::mutex mutex_;
  std::vector<ncclComm*> comms_;  // of the world, first, and of groups
  std::map<const void*, std::function<void()>> graphs_;
  std::string cause_;  // why exchanges are broken off; it stays what it is
  std::map<std::vector<std::vector<int>>, std::unique_ptr<Group>> groups_;
  std::vector<std::string> hosts_;  // by rank
  std::optional<PeerMemory> peers_;
  DeviceBlock fences_;                     // a word a lane
  std::map<MemoryUse, void*> registered_;  // with NCCL's handle
  std::string without_registration_;
  // A failure of the job, of which the control plane has heard; shared with its callback.
  struct Heard {
    std::mutex mutex;
    std::condition_variable changed;
    std::string cause;
    std::atomic<bool> failed = false;
    std::string text() {
      const std::lock_guard guard(mutex);
      return cause;
    }
  };
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  std::string network_;
  std::unique_ptr<RankProgress> progress_;
};

}  // namespace tessera::cuda
