// Ranks of several processes: who they are, and what they give each other. A rank that has come to
// an exchange gives its part as a file and takes those of the others when all are there, so one
// that has died is one that never comes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "access_checks.h"
#include "driver_exports.h"
#include "nccl_communicators.h"

namespace tessera::emulated_gpu {
namespace {

using namespace cuda;

constexpr const char* kPresent = "rank";

// What a rank says of itself: its process, the number of ranks, the address of its GPU on what it
// takes for its host.
struct Presence {
  int64_t process = 0;
  int ranks = 0;
  std::string gpu;
};
std::optional<Presence> presence_of(const RankFiles& files, int rank) {
  const std::optional<std::string> text = files.get(kPresent, rank);
  if (!text) return std::nullopt;
  Presence p;
  std::istringstream(*text) >> p.process >> p.ranks >> p.gpu;
  return p;
}

// A call as it lies in a file, in front of what is given.
struct Header {
  int64_t count = 0;
  int32_t kind = 0, type = 0, reduction = 0, captured = 0, registered = 0;
};
Header header_of(const CollectiveCall& call) {
  return {call.count,     static_cast<int32_t>(call.kind), call.type, call.reduction, call.captured,
          call.registered};
}
CollectiveCall call_of(const std::string& text) {
  Header h;
  std::memcpy(&h, text.data(), sizeof h);
  CollectiveCall call;
  call.kind = static_cast<Collective>(h.kind);
  call.count = h.count;
  call.type = h.type;
  call.reduction = h.reduction;
  call.captured = h.captured != 0;
  call.registered = h.registered;
  call.from = reinterpret_cast<const std::byte*>(text.data()) + sizeof h;
  return call;
}

// One exchange of one rank.
struct Posted {
  std::shared_ptr<RankFiles> files;
  std::string name;
  int own = 0;
  CollectiveCall call;
  std::vector<bool> there;
  std::vector<std::string> texts;  // of all, when they are there
  bool given = false;

  int64_t gives(int participant) const {
    if (call.kind == Collective::kSend) {
      return participant == 0 ? call.count * nccl_element_bytes(call.type) : 0;
    }
    return bytes_of(call, static_cast<int64_t>(there.size())).first;
  }
  int64_t gets() const {
    if (call.kind == Collective::kSend) {
      return own == 1 ? call.count * nccl_element_bytes(call.type) : 0;
    }
    return bytes_of(call, static_cast<int64_t>(there.size())).second;
  }

  void give() {
    given = true;
    const Header header = header_of(call);
    const int64_t bytes = is_usable(call, gives(own), gets()) ? gives(own) : 0;
    std::vector<std::byte> content(sizeof header + static_cast<size_t>(bytes));
    std::memcpy(content.data(), &header, sizeof header);
    if (bytes) std::memcpy(content.data() + sizeof header, call.from, static_cast<size_t>(bytes));
    if (!files->put(name, own, content)) found("NCCL: an exchange between processes: no file");
  }

  // False while somebody is missing, and for ever where they call different things.
  bool complete() {
    if (!given) give();
    if (!texts.empty()) return true;
    for (size_t n = 0; n < there.size(); ++n) {
      there[n] = there[n] || files->has(name, static_cast<int>(n));
      if (!there[n]) return false;
    }
    std::vector<std::string> all;
    for (size_t n = 0; n < there.size(); ++n) {
      all.push_back(files->get(name, static_cast<int>(n)).value_or(""));
      if (all.back().size() < sizeof(Header)) return false;
      const CollectiveCall other = call_of(all.back());
      compare_capture(call, other);
      compare_registered(call, other);
      if (call.same_as(other)) {
        const auto bytes = static_cast<size_t>(gives(static_cast<int>(n)));
        if (all.back().size() == sizeof(Header) + bytes) continue;
        return false;  // what it gives cannot be used, as it says itself
      }
      found("NCCL: ranks call different things at the same place",
            description_of(call) + ", " + description_of(other));
      return false;
    }
    texts = std::move(all);
    files->taken(name, static_cast<int>(there.size()));
    return true;
  }

  std::vector<Range> finish() const {
    std::vector<CollectiveCall> calls;
    for (const std::string& text : texts) calls.push_back(call_of(text));
    const auto bytes = static_cast<size_t>(gets());
    if (bytes && is_usable(call, 0, gets())) {
      const std::vector<std::byte> received =
          call.kind == Collective::kSend
              ? std::vector<std::byte>(calls[0].from, calls[0].from + bytes)
              : received_by(static_cast<size_t>(own), calls);
      std::memcpy(call.to, received.data(), bytes);
      simt::set_written(call.to, bytes);
    }
    return {{call.from, gives(own), false}, {call.to, gets(), true}};
  }
};

}  // namespace

bool say_present(const Clique& clique, int rank, int device) {
  char gpu[32];
  cuDeviceGetPCIBusId(gpu, sizeof gpu, device);
  const char* host = std::getenv("TESSERA_HOST_ID");
  return clique.files->put(kPresent, rank,
                           std::to_string(::getpid()) + " " +
                               std::to_string(clique.communicators.size()) + " " + gpu +
                               (host ? host : ""));
}

bool Clique::connected() {
  if (spans_processes || complete()) return true;
  if (!files) return false;
  std::vector<std::string> gpus;
  bool all_here = true;
  const auto ranks = static_cast<int>(communicators.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto p = presence_of(*files, rank);
    if (!p) return false;
    if (p->ranks != ranks && !error) {
      found("NCCL: ranks give different numbers of ranks");
      error = kNcclInvalidUsage;
    }
    if (std::find(gpus.begin(), gpus.end(), p->gpu) != gpus.end() && !error) {
      found("NCCL: two ranks on one device");
      error = kNcclInvalidUsage;
    }
    gpus.push_back(p->gpu);
    all_here = all_here && p->process == ::getpid();
  }
  if (all_here) return false;  // a thread is about to be there
  machine().meets_processes = true;
  return spans_processes = true;
}

bool Communicator::ready() {
  if (!clique && divided) connect_divided(*this);
  return clique && clique->connected();
}

void connect_divided(Communicator& communicator) {
  const Communicator::Divided& own = *communicator.divided;
  const std::string name = "split" + std::to_string(own.number);
  std::vector<std::pair<int, int>> key_and_rank;
  for (int rank = 0; rank < static_cast<int>(own.parent->communicators.size()); ++rank) {
    const auto text = own.parent->files->get(name, rank);
    if (!text) return;
    int color = 0, key = 0;
    std::istringstream(*text) >> color >> key;
    if (color == own.color) key_and_rank.emplace_back(key, rank);
  }
  std::sort(key_and_rank.begin(), key_and_rank.end());
  auto made = std::make_shared<Clique>();
  made->communicators.assign(key_and_rank.size(), -1);
  made->spans_processes = true;
  made->files = std::make_shared<RankFiles>(own.parent->files->directory() + "/" + name + "color" +
                                            std::to_string(own.color));
  for (size_t n = 0; n < key_and_rank.size(); ++n) {
    if (key_and_rank[n].second == own.rank) communicator.rank = static_cast<int>(n);
  }
  communicator.clique = std::move(made);
}

Seat join_elsewhere(Communicator& communicator, const CollectiveCall& call, const std::string& name,
                    int participant, int participants) {
  const auto posted = std::make_shared<Posted>();
  posted->files = communicator.clique->files;
  posted->name = name;
  posted->own = participant;
  posted->call = call;
  posted->there.resize(static_cast<size_t>(participants));
  auto meeting = std::make_shared<Meeting>();
  meeting->expected = 1;
  meeting->others = [posted] { return posted->complete(); };
  meeting->body = [posted] { return std::vector<std::vector<Range>>{posted->finish()}; };
  auto& list = communicator.meetings;
  std::erase_if(list, [](const auto& weak) { return weak.expired(); });
  list.push_back(meeting);
  return {std::move(meeting), 0, communicator.left};
}

}  // namespace tessera::emulated_gpu
