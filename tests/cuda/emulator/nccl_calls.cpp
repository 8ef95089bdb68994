// A double of NCCL's functions.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "faults.h"
#include "nccl_communicators.h"
#include "nccl_exports.h"

namespace tessera::emulated_gpu {
namespace {

// A call that is held back to the end of its group.
struct Grouped {
  int communicator = 0;
  CollectiveCall call;
  int peer = -1;
  bool sends = false;
  int stream = 0;
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> grouped;

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static auto* map = new std::map<std::string, std::shared_ptr<Clique>>;
  return *map;
}
ncclComm* handle_of(int number) { return make_handle<ncclComm*>(Handle::kCommunicator, number); }

ncclResult wrong(const std::string& what) {
  found("NCCL: " + what);
  return kNcclInvalidUsage;
}

}  // namespace

Communicator* communicator_of(ncclComm* handle, const char* call, bool must_be_ready) {
  Communicator* c = object_of(Handle::kCommunicator, communicators(), handle, call, "communicator");
  if (!c) return nullptr;
  if (c->aborted) {
    wrong(std::string(call) + " on a communicator that was aborted");
    return nullptr;
  }
  if (must_be_ready && !c->ready()) {
    wrong(std::string(call) + " on a communicator that is not connected yet");
    return nullptr;
  }
  if (must_be_ready && (c->under_way > 0 || c->splitting)) {
    wrong(std::string(call) + " while the call before it is in progress");
    return nullptr;
  }
  if (must_be_ready && c->finalized) {
    wrong(std::string(call) + " on a communicator that is ended");
    return nullptr;
  }
  return c;
}

namespace {

bool is_blocking(const ncclConfig* config) { return !config || config->blocking != 0; }

// Waits where it has to for all ranks.
ncclResult connected(int number, bool blocking) {
  Machine& m = machine();
  m.changed.notify_all();
  const auto at = [&]() -> Communicator& { return communicators()[static_cast<size_t>(number)]; };
  while (blocking && !at().ready() && !at().aborted) {
    m.meets_processes = true;  // perhaps
    m.wait_for_others();
  }
  return at().ready() ? kNcclSuccess : kNcclInProgress;
}

int add_communicator(std::shared_ptr<Clique> clique, int rank, int device, bool blocking) {
  Communicator c;
  c.blocking = blocking;
  c.clique = std::move(clique);
  c.rank = rank;
  c.device = device;
  communicators().push_back(std::move(c));
  return static_cast<int>(communicators().size()) - 1;
}

// Everybody has come to a split: connects those of one color in the order of their keys.
void connect_split(const Clique::Split& split) {
  std::map<int, std::vector<int>> ranks_of_color;
  for (int rank = 0; rank < static_cast<int>(split.made.size()); ++rank) {
    if (split.made[static_cast<size_t>(rank)] >= 0) {
      ranks_of_color[split.color_and_key[static_cast<size_t>(rank)].first].push_back(rank);
    }
  }
  for (auto& [color, ranks] : ranks_of_color) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return split.color_and_key[static_cast<size_t>(a)].second <
             split.color_and_key[static_cast<size_t>(b)].second;
    });
    const auto clique = std::make_shared<Clique>();
    for (size_t n = 0; n < ranks.size(); ++n) {
      const int number = split.made[static_cast<size_t>(ranks[n])];
      clique->communicators.push_back(number);
      communicators()[static_cast<size_t>(number)].clique = clique;
      communicators()[static_cast<size_t>(number)].rank = static_cast<int>(n);
    }
  }
}

// As NCCL does where the environment says that and where it logs.
void tell_network() {
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  if (!file) return;
  if (FILE* log = std::fopen(file, "a")) {
    std::fputs("host:1:1 [0] NCCL INFO Using network Socket\n", log);
    std::fclose(log);
  }
}

int ends_registered(const Grouped& g) {
  const Communicator& c = communicators()[static_cast<size_t>(g.communicator)];
  auto [gives, gets] = bytes_of(g.call, static_cast<int64_t>(c.clique->communicators.size()));
  if (g.peer >= 0) (g.sends ? gets : gives) = 0;
  const int ends = registered_ends(g.communicator, g.call, gives, gets);
  const int all = (gives > 0 ? 1 : 0) | (gets > 0 ? 2 : 0);
  machine().exchanges++;
  machine().registered_exchanges += ends == all;
  return g.peer < 0 ? ends : ends != 0;  // of a send each rank has one end
}

// Puts calls of one group that are for one stream there as one piece of work.
void enqueue_calls(Stream& stream, const std::vector<Grouped>& calls) {
  Work work;
  work.label = "NCCL";
  work.is_launch = true;
  work.meet = [calls] {
    std::vector<Seat> seats;
    for (const Grouped& g : calls) {
      Communicator& c = communicators()[static_cast<size_t>(g.communicator)];
      CollectiveCall call = g.call;
      call.registered = ends_registered(g);
      seats.push_back(g.peer < 0 ? join_collective(c, call) : join_send(c, call, g.peer, g.sends));
    }
    return seats;
  };
  machine().add(stream, std::move(work));
  if (stream.capture >= 0) {
    Captured& graph = machine().captures[static_cast<size_t>(stream.capture)];
    for (const Grouped& g : calls) {
      graph.communicators.insert(g.communicator);
      for (const std::byte* at : {g.call.from, static_cast<const std::byte*>(g.call.to)})
        if (at) graph.exchanged.push_back(at);
    }
    return;
  }
  for (const Grouped& g : calls) {
    communicators()[static_cast<size_t>(g.communicator)].last_operation = stream.last;
  }
}

ncclResult end_group() {
  std::map<int, std::vector<Grouped>> by_stream;
  ncclResult result = kNcclSuccess;
  for (const Grouped& g : grouped) {
    by_stream[g.stream].push_back(g);
    Communicator& c = communicators()[static_cast<size_t>(g.communicator)];
    if (!machine().nccl_lags || c.blocking) continue;
    c.under_way = 1 + static_cast<int>(machine().random() % 3);
    result = kNcclInProgress;
  }
  grouped.clear();
  for (const auto& [stream, calls] : by_stream) {
    enqueue_calls(machine().streams[static_cast<size_t>(stream)], calls);
  }
  return result;
}

ncclResult call_collective(ncclComm* comm, CollectiveCall call, int peer, bool sends,
                           CUstream stream, const char* name) {
  const std::lock_guard lock(machine().mutex);
  if (ready(name) != kCudaSuccess) return kNcclUnhandledCudaError;
  Communicator* c = communicator_of(comm, name, true);
  Stream* s = c ? stream_of(stream, name) : nullptr;
  if (!s) return kNcclInvalidArgument;
  if (c->error) return c->error;
  if (c->device != current_device()) {
    return wrong(std::string(name) +
                 ": the communicator is of another device than the current one");
  }
  if (nccl_element_bytes(call.type) == 0 || call.count < 0 ||
      (peer >= static_cast<int>(c->clique->communicators.size()))) {
    wrong(std::string(name) + ": an invalid type, number or peer");
    return kNcclInvalidArgument;
  }
  if (peer >= 0 && peer == c->rank && group_depth == 0) {
    return wrong(std::string(name) + ": to the own rank outside of a group");
  }
  // In place or apart, but not over each other.
  const int64_t one = call.count * nccl_element_bytes(call.type);
  const auto ranks = static_cast<int64_t>(c->clique->communicators.size());
  const int64_t gives = call.kind == Collective::kReduceScatter ? one * ranks : one;
  const int64_t gets = call.kind == Collective::kAllGather ? one * ranks : one;
  if (peer < 0) {
    const std::byte* own_part =
        call.kind == Collective::kAllGather ? call.to + c->rank * one : call.to;
    const std::byte* place =
        call.kind == Collective::kReduceScatter ? call.from + c->rank * one : call.from;
    const bool overlap = call.from < call.to + gets && call.to < call.from + gives;
    if (overlap && own_part != place) {
      return wrong(std::string(name) + ": the buffers overlap but are not in place");
    }
  }
  if (call.count == 0) return kNcclSuccess;
  call.device = c->device;
  call.captured = s->capture >= 0;
  grouped.push_back({number_of(Handle::kCommunicator, comm), call, peer, sends, s->number});
  return group_depth == 0 ? end_group() : kNcclSuccess;
}

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
int64_t number(size_t count) { return static_cast<int64_t>(count); }

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

ncclResult ncclGetVersion(int* version) {
  *version = nccl_version();
  return kNcclSuccess;
}
ncclResult ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(machine().mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "%s", new_meeting_place().c_str());
  return kNcclSuccess;
}

ncclResult ncclCommInitRankConfig(ncclComm** comm, int ranks, ncclUniqueId id, int rank,
                                  ncclConfig* config) {
  const std::lock_guard lock(machine().mutex);
  *comm = nullptr;
  if (ready(__func__) != kCudaSuccess) return kNcclUnhandledCudaError;
  if (ranks < 1 || rank < 0 || rank >= ranks) return kNcclInvalidArgument;
  fault_at("init");
  std::shared_ptr<Clique>& clique = cliques()[std::string(id.internal, sizeof id.internal)];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->communicators.assign(static_cast<size_t>(ranks), -1);
    clique->files = std::make_shared<RankFiles>(std::string(id.internal));
  }
  if (static_cast<int>(clique->communicators.size()) != ranks) {
    return wrong("ranks give different numbers of ranks");
  }
  if (clique->communicators[static_cast<size_t>(rank)] >= 0) {
    return wrong("a rank is there twice");
  }
  for (const int other : clique->communicators) {
    if (other >= 0 && communicators()[static_cast<size_t>(other)].device == current_device()) {
      return wrong("two ranks on one device");
    }
  }
  tell_network();
  if (!say_present(*clique, rank, current_device())) return wrong("a rank is there twice");
  const int made = add_communicator(clique, rank, current_device(), is_blocking(config));
  clique->communicators[static_cast<size_t>(rank)] = made;
  *comm = handle_of(made);
  return connected(made, is_blocking(config));
}

// Where it does not block the new communicator is null on return, though all is well: it is there
// when the one that was split is no longer in progress.
ncclResult ncclCommSplit(ncclComm* comm, int color, int key, ncclComm** made, ncclConfig* config) {
  const std::lock_guard lock(machine().mutex);
  *made = nullptr;
  Communicator* c = communicator_of(comm, __func__, true);
  if (!c) return kNcclInvalidArgument;
  const std::shared_ptr<Clique> parent = c->clique;
  const int64_t number_of_split = c->splits++;
  const int number = color < 0 ? -1 : add_communicator(nullptr, 0, c->device, is_blocking(config));
  if (parent->spans_processes) {
    parent->files->put("split" + std::to_string(number_of_split), c->rank,
                       std::to_string(color) + " " + std::to_string(key));
    if (number >= 0) {
      communicators()[static_cast<size_t>(number)].divided = {parent, number_of_split, c->rank,
                                                              color};
    }
  } else {
    Clique::Split& split = parent->splits[number_of_split];
    const size_t ranks = parent->communicators.size();
    split.color_and_key.resize(ranks);
    split.made.resize(ranks, -1);
    split.color_and_key[static_cast<size_t>(c->rank)] = {color, key};
    split.made[static_cast<size_t>(c->rank)] = number;
    if (++split.present == static_cast<int>(ranks)) connect_split(split);
    machine().changed.notify_all();
  }
  if (number < 0) return kNcclSuccess;
  if (c->blocking) {
    *made = handle_of(number);
    return connected(number, true);
  }
  c->splitting = {made, number};
  return kNcclSuccess;
}

const char* ncclGetErrorString(ncclResult result) {
  switch (result) {
    case kNcclSuccess: return "no error";
    case kNcclUnhandledCudaError: return "unhandled cuda error";
    case kNcclSystemError: return "unhandled system error";
    case kNcclInternalError: return "internal error";
    case kNcclInvalidArgument: return "invalid argument";
    case kNcclInvalidUsage: return "invalid usage";
    case kNcclRemoteError: return "remote process exited or there was a network error";
    case kNcclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}
const char* ncclGetLastError(ncclComm*) { return ""; }

ncclResult ncclAllReduce(const void* from, void* to, size_t count, int type, int reduction,
                         ncclComm* comm, CUstream stream) {
  return call_collective(
      comm, {Collective::kAllReduce, bytes(from), bytes(to), number(count), type, reduction}, -1,
      false, stream, __func__);
}
ncclResult ncclReduceScatter(const void* from, void* to, size_t received, int type, int reduction,
                             ncclComm* comm, CUstream stream) {
  return call_collective(
      comm, {Collective::kReduceScatter, bytes(from), bytes(to), number(received), type, reduction},
      -1, false, stream, __func__);
}
ncclResult ncclAllGather(const void* from, void* to, size_t sent, int type, ncclComm* comm,
                         CUstream stream) {
  return call_collective(comm,
                         {Collective::kAllGather, bytes(from), bytes(to), number(sent), type, 0},
                         -1, false, stream, __func__);
}
ncclResult ncclSend(const void* from, size_t count, int type, int peer, ncclComm* comm,
                    CUstream stream) {
  return call_collective(comm, {Collective::kSend, bytes(from), nullptr, number(count), type, 0},
                         peer, true, stream, __func__);
}
ncclResult ncclRecv(void* to, size_t count, int type, int peer, ncclComm* comm, CUstream stream) {
  return call_collective(comm, {Collective::kSend, nullptr, bytes(to), number(count), type, 0},
                         peer, false, stream, __func__);
}
ncclResult ncclGroupStart() {
  group_depth++;
  return kNcclSuccess;
}
ncclResult ncclGroupEnd() {
  const std::lock_guard lock(machine().mutex);
  if (group_depth == 0) return wrong("a group is ended that was not begun");
  return --group_depth == 0 ? end_group() : kNcclSuccess;
}

}  // extern "C"
