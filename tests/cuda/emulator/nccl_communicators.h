#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/nccl_api.h"
#include "handles.h"
#include "rank_files.h"

// Communicators of the double of NCCL: ranks are threads of this process, or of several processes,
// which meet by files (nccl_processes.cpp).
namespace tessera::emulated_gpu {

enum class Collective : uint8_t { kAllReduce, kReduceScatter, kAllGather, kSend };

// A call as one rank makes it.
struct CollectiveCall {
  Collective kind = Collective::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t count = 0;  // as the call says it
  int type = 0, reduction = 0;
  int device = 0;
  bool captured = false;  // in a graph
  int registered = 0;     // 1: what it gives, 2: where it gets is registered memory
  bool same_as(const CollectiveCall& other) const {
    return kind == other.kind && count == other.count && type == other.type &&
           reduction == other.reduction;
  }
};

// Calls of all ranks that belong together.
struct CollectiveRecord {
  std::shared_ptr<Meeting> meeting;
  std::shared_ptr<std::vector<CollectiveCall>> calls;  // by rank; of a send: sender and receiver
  int joined = 0;
};

// The ranks that one communicator connects.
struct Clique {
  std::vector<int> communicators;               // by rank; -1: not there yet
  std::map<int64_t, CollectiveRecord> records;  // by their number
  std::map<std::pair<int, int>, std::map<int64_t, CollectiveRecord>>
      sends;  // by sender and receiver
  struct Split {
    int present = 0;
    std::vector<std::pair<int, int>> color_and_key;
    std::vector<int> made;
  };
  std::map<int64_t, Split> splits;
  bool complete() const;

  // Where ranks of other processes are found, and whether there are any. While it is not known who
  // the ranks are, the clique is not connected.
  std::shared_ptr<RankFiles> files;
  bool spans_processes = false;
  int error = 0;  // of connecting
  bool connected();
};

struct Communicator {
  std::shared_ptr<Clique> clique;  // null: a split of which not all ranks are known
  int rank = 0, device = 0;
  bool destroyed = false, aborted = false, finalized = false, blocking = true;
  int under_way = 0;  // how often it is still to be asked about its last call
  int error = 0;
  std::shared_ptr<bool> left = std::make_shared<bool>(false);
  int64_t calls = 0, splits = 0, fences = 0;
  std::map<int, int64_t> sends, receives;  // with each other rank
  int64_t last_operation = 0;
  std::vector<std::weak_ptr<Meeting>> meetings;
  // A split of ranks of several processes: what it divides, until all have said their color.
  struct Divided {
    std::shared_ptr<Clique> parent;
    int64_t number = 0;
    int rank = 0, color = 0;
  };
  std::optional<Divided> divided;
  // A split of this one that is in progress: where its communicator will be put, and which it is.
  struct Splitting {
    cuda::ncclComm** made = nullptr;
    int number = 0;
  };
  std::optional<Splitting> splitting;
  bool ready();
};

std::deque<Communicator>& communicators();
// What a communicator has begun is never done.
void break_meetings(Communicator& communicator);
// All give `error` from now on, and what they have begun is never done.
void break_communicators(int error);

// In the thread that asks; null and a finding for one that cannot be used.
Communicator* communicator_of(cuda::ncclComm* handle, const char* call, bool must_be_ready);

// 22703 unless TESSERA_EMULATED_NCCL_VERSION says another; before 21900 memory is not registered.
int nccl_version();
// Memory that is registered with a communicator (nccl_registrations.cpp).
struct Registration {
  int communicator = 0;
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool destroyed = false;
};
std::deque<Registration>& registrations();
// Which ends of a call are registered, as CollectiveCall has it.
int registered_ends(int communicator, const CollectiveCall& call, int64_t gives, int64_t gets);
// Those of a communicator that goes. How many there were.
int drop_registrations(int communicator);

// Where a call of a communicator meets those of the others; checks that they agree.
Seat join_collective(Communicator& communicator, const CollectiveCall& call);
Seat join_send(Communicator& communicator, const CollectiveCall& call, int peer, bool sends);

// The same with ranks of other processes.
Seat join_elsewhere(Communicator& communicator, const CollectiveCall& call, const std::string& name,
                    int participant, int participants);
// This rank's part in connecting ranks of different processes, which `device` is of; false if it is
// there twice.
bool say_present(const Clique& clique, int rank, int device);
// Connects a split of several processes, if all its ranks have come.
void connect_divided(Communicator& communicator);

int64_t nccl_element_bytes(int type);  // 0: there is no such type
// What the calls of all ranks do; the ranges that each rank touches.
std::vector<std::vector<Range>> run_collective(const std::vector<CollectiveCall>& calls);
// Parts of that: what a rank gives and gets, in bytes; whether both ends are live, and written what
// is sent; what one rank receives.
std::pair<int64_t, int64_t> bytes_of(const CollectiveCall& call, int64_t ranks);
bool is_usable(const CollectiveCall& call, int64_t gives, int64_t gets);
std::vector<std::byte> received_by(size_t rank, const std::vector<CollectiveCall>& calls);
std::string description_of(const CollectiveCall& call);
// Whether a call is in a graph has to be the same for all ranks.
void compare_capture(const CollectiveCall& a, const CollectiveCall& b);
// And whether its memory is registered.
void compare_registered(const CollectiveCall& a, const CollectiveCall& b);

}  // namespace tessera::emulated_gpu
