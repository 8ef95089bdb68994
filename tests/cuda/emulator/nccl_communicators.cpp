// How calls of ranks find each other, and what they compute: sums in the order of ranks, in f32 for
// half precision, rounded once.
#include "nccl_communicators.h"

#include <algorithm>
#include <cstring>

#include "access_checks.h"
#include "host_elements.h"

namespace tessera::emulated_gpu {
namespace {

using namespace cuda;

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::kAllReduce: return "all-reduce";
    case Collective::kReduceScatter: return "reduce-scatter";
    case Collective::kAllGather: return "all-gather";
    default: return "send";
  }
}

template <class T>
T reduced(T a, T b, int reduction) {
  if (reduction == kNcclMax) return std::max(a, b);
  if (reduction == kNcclMin) return std::min(a, b);
  return static_cast<T>(a + b);
}

// `Stored` as it lies, `Sum` as it is summed.
template <class Stored, class Sum, class Load, class Store>
void reduce(const std::vector<const std::byte*>& from, std::byte* to, int64_t count, int reduction,
            Load load, Store store) {
  for (int64_t n = 0; n < count; ++n) {
    Sum total{};
    for (size_t rank = 0; rank < from.size(); ++rank) {
      Stored stored;
      std::memcpy(&stored, from[rank] + n * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
      total = rank ? reduced<Sum>(total, load(stored), reduction) : load(stored);
    }
    const Stored stored = store(total);
    std::memcpy(to + n * static_cast<int64_t>(sizeof(Stored)), &stored, sizeof(Stored));
  }
}
template <class T>
void reduce_plain(const std::vector<const std::byte*>& from, std::byte* to, int64_t count,
                  int reduction) {
  const auto same = [](T v) { return v; };
  reduce<T, T>(from, to, count, reduction, same, same);
}

void reduce_any(int type, const std::vector<const std::byte*>& from, std::byte* to, int64_t count,
                int reduction) {
  switch (type) {
    case kNcclInt8: return reduce_plain<int8_t>(from, to, count, reduction);
    case kNcclUint8: return reduce_plain<uint8_t>(from, to, count, reduction);
    case kNcclInt32: return reduce_plain<int32_t>(from, to, count, reduction);
    case kNcclUint32: return reduce_plain<uint32_t>(from, to, count, reduction);
    case kNcclInt64: return reduce_plain<int64_t>(from, to, count, reduction);
    case kNcclUint64: return reduce_plain<uint64_t>(from, to, count, reduction);
    case kNcclFloat32: return reduce_plain<float>(from, to, count, reduction);
    case kNcclFloat64: return reduce_plain<double>(from, to, count, reduction);
    case kNcclBfloat16:
      return reduce<uint16_t, float>(from, to, count, reduction, from_bf16, to_bf16);
    default: return reduce<uint16_t, float>(from, to, count, reduction, from_f16, to_f16);
  }
}

CollectiveRecord& record_of(std::map<int64_t, CollectiveRecord>& records, int64_t number,
                            size_t participants) {
  CollectiveRecord& record = records[number];
  if (!record.meeting) {
    record.calls = std::make_shared<std::vector<CollectiveCall>>(participants);
    record.meeting = std::make_shared<Meeting>();
    record.meeting->expected = static_cast<int>(participants);
    record.meeting->body = [calls = record.calls] { return run_collective(*calls); };
  }
  return record;
}

void remember(Communicator& communicator, const std::shared_ptr<Meeting>& meeting) {
  auto& list = communicator.meetings;
  std::erase_if(list, [](const auto& weak) { return weak.expired(); });
  list.push_back(meeting);
}

void compare(const CollectiveRecord& record, size_t own) {
  const CollectiveCall& call = (*record.calls)[own];
  for (size_t n = 0; n < record.calls->size(); ++n) {
    const CollectiveCall& other = (*record.calls)[n];
    if (n == own || other.count == 0) continue;
    compare_capture(call, other);
    compare_registered(call, other);
    if (call.same_as(other)) continue;
    found("NCCL: ranks call different things at the same place",
          description_of(call) + ", " + description_of(other));
    record.meeting->broken = true;
  }
}

}  // namespace

std::pair<int64_t, int64_t> bytes_of(const CollectiveCall& call, int64_t ranks) {
  const int64_t one = call.count * nccl_element_bytes(call.type);
  if (call.kind == Collective::kReduceScatter) return {one * ranks, one};
  if (call.kind == Collective::kAllGather) return {one, one * ranks};
  return {one, one};
}

bool is_usable(const CollectiveCall& call, int64_t gives, int64_t gets) {
  Machine& m = machine();
  if (gives && (!call.from || !m.memory_of(call.from, gives, "a call of NCCL"))) return false;
  if (gets && (!call.to || !m.memory_of(call.to, gets, "a call of NCCL"))) return false;
  if (gives && !simt::is_written(call.from, static_cast<size_t>(gives))) {
    found(std::string("NCCL: ") + name_of(call.kind) + " sends what nobody has written");
  }
  return true;
}

void compare_capture(const CollectiveCall& a, const CollectiveCall& b) {
  if (a.captured == b.captured) return;
  found("NCCL: one rank has a call in a graph and another has not", description_of(a));
}

void compare_registered(const CollectiveCall& a, const CollectiveCall& b) {
  if (a.registered == b.registered) return;
  found("NCCL: one rank gives registered memory and another does not", description_of(a));
}

std::string description_of(const CollectiveCall& call) {
  return std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + " of type " +
         std::to_string(call.type);
}

std::deque<Communicator>& communicators() {
  static auto* list = new std::deque<Communicator>;
  return *list;
}
bool Clique::complete() const {
  return std::none_of(communicators.begin(), communicators.end(), [](int c) { return c < 0; });
}

int64_t nccl_element_bytes(int type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8: return 1;
    case kNcclFloat16:
    case kNcclBfloat16: return 2;
    case kNcclInt32:
    case kNcclUint32:
    case kNcclFloat32: return 4;
    case kNcclInt64:
    case kNcclUint64:
    case kNcclFloat64: return 8;
    default: return 0;
  }
}

std::vector<std::byte> received_by(size_t rank, const std::vector<CollectiveCall>& calls) {
  const CollectiveCall& first = calls.front();
  const auto [gives, gets] = bytes_of(first, static_cast<int64_t>(calls.size()));
  std::vector<std::byte> own(static_cast<size_t>(gets));
  if (first.kind == Collective::kAllGather) {
    for (size_t other = 0; other < calls.size(); ++other) {
      std::memcpy(own.data() + other * static_cast<size_t>(gives), calls[other].from,
                  static_cast<size_t>(gives));
    }
    return own;
  }
  const int64_t shift =
      first.kind == Collective::kReduceScatter ? static_cast<int64_t>(rank) * gets : 0;
  std::vector<const std::byte*> parts;
  for (const CollectiveCall& call : calls) parts.push_back(call.from + shift);
  if (!machine().sums_in_rings) {
    reduce_any(first.type, parts, own.data(), first.count, first.reduction);
    return own;
  }
  // A part of the whole a rank: it goes round, beginning with the next one, and ends where it
  // belongs.
  const auto ranks = static_cast<int64_t>(calls.size());
  const bool scatters = first.kind == Collective::kReduceScatter;
  const int64_t part = scatters ? first.count : (first.count + ranks - 1) / ranks;
  for (int64_t begin = 0; begin < first.count; begin += part) {
    const int64_t owner = scatters ? static_cast<int64_t>(rank) : begin / part;
    std::vector<const std::byte*> round;
    for (int64_t n = 1; n <= ranks; ++n) {
      round.push_back(parts[static_cast<size_t>((owner + n) % ranks)] +
                      begin * nccl_element_bytes(first.type));
    }
    reduce_any(first.type, round, own.data() + begin * nccl_element_bytes(first.type),
               std::min(part, first.count - begin), first.reduction);
  }
  return own;
}

std::vector<std::vector<Range>> run_collective(const std::vector<CollectiveCall>& calls) {
  const auto ranks = static_cast<int64_t>(calls.size());
  std::vector<std::vector<Range>> ranges(calls.size());
  const CollectiveCall& first = calls.front();
  if (first.kind == Collective::kSend) {
    const int64_t bytes = first.count * nccl_element_bytes(first.type);
    if (!is_usable(first, bytes, 0) || !is_usable(calls[1], 0, bytes)) return ranges;
    std::memmove(calls[1].to, first.from, static_cast<size_t>(bytes));
    simt::set_written(calls[1].to, static_cast<size_t>(bytes));
    ranges[0] = {{first.from, bytes, false}};
    ranges[1] = {{calls[1].to, bytes, true}};
    return ranges;
  }
  const auto [gives, gets] = bytes_of(first, ranks);
  for (const CollectiveCall& call : calls) {
    if (!is_usable(call, gives, gets)) return ranges;
  }
  // All that is received before any of it is stored: calls may be in place.
  std::vector<std::vector<std::byte>> received;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const bool same = first.kind == Collective::kAllReduce && rank > 0;
    received.push_back(same ? received[0] : received_by(rank, calls));
  }
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::memcpy(calls[rank].to, received[rank].data(), static_cast<size_t>(gets));
    simt::set_written(calls[rank].to, static_cast<size_t>(gets));
    ranges[rank] = {{calls[rank].from, gives, false}, {calls[rank].to, gets, true}};
  }
  return ranges;
}

Seat join_collective(Communicator& communicator, const CollectiveCall& call) {
  Clique& clique = *communicator.clique;
  const int64_t number = communicator.calls++;
  if (clique.spans_processes) {
    return join_elsewhere(communicator, call, "call" + std::to_string(number), communicator.rank,
                          static_cast<int>(clique.communicators.size()));
  }
  const auto own = static_cast<size_t>(communicator.rank);
  CollectiveRecord& record = record_of(clique.records, number, clique.communicators.size());
  (*record.calls)[own] = call;
  compare(record, own);
  Seat seat{record.meeting, communicator.rank, communicator.left};
  if (call.kind == Collective::kAllReduce && call.count == 1 && call.type == kNcclInt32) {
    Machine& m = machine();
    m.fences = std::max(m.fences, ++communicator.fences);
    seat.learns = communicator.fences != m.left_out_fence;  // as a test asked for
  }
  remember(communicator, record.meeting);
  if (++record.joined == static_cast<int>(record.calls->size())) clique.records.erase(number);
  return seat;
}

Seat join_send(Communicator& communicator, const CollectiveCall& call, int peer, bool sends) {
  Clique& clique = *communicator.clique;
  const auto pair = sends ? std::pair(communicator.rank, peer) : std::pair(peer, communicator.rank);
  const int64_t number = (sends ? communicator.sends : communicator.receives)[peer]++;
  const size_t own = sends ? 0 : 1;
  if (clique.spans_processes) {
    return join_elsewhere(communicator, call,
                          "send" + std::to_string(number) + "from" + std::to_string(pair.first) +
                              "to" + std::to_string(pair.second),
                          static_cast<int>(own), 2);
  }
  CollectiveRecord& record = record_of(clique.sends[pair], number, 2);
  (*record.calls)[own] = call;
  compare(record, own);
  const Seat seat{record.meeting, static_cast<int>(own), communicator.left, !sends};
  remember(communicator, record.meeting);
  if (++record.joined == 2) clique.sends[pair].erase(number);
  return seat;
}

void break_meetings(Communicator& communicator) {
  for (const auto& weak : communicator.meetings) {
    if (const auto meeting = weak.lock()) meeting->broken = true;
  }
}
void break_communicators(int error) {
  for (Communicator& communicator : communicators()) {
    if (communicator.destroyed || communicator.aborted) continue;
    communicator.error = error;
    break_meetings(communicator);
  }
}

}  // namespace tessera::emulated_gpu
