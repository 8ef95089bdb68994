#include "comm/local_transport.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/pause_core.h"
#include "base/text.h"

namespace tessera {
namespace {

// Checks of the counter before going to sleep: a few microseconds. More ranks than cores is common,
// and the one that is waited for may need this core.
constexpr int kSpins = 100;
// After so long asleep the health of the job is looked at.
constexpr std::chrono::milliseconds kNap{20};
// Longer than it takes a peer to say in which call it is.
constexpr std::chrono::milliseconds kNews{2000};

bool reached(uint32_t value, uint32_t wanted) { return static_cast<int32_t>(value - wanted) >= 0; }

// Not the private kind of futex: other processes have the page elsewhere.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  timespec time{0, std::chrono::nanoseconds(kNap).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

LocalTransport::LocalTransport(int rank, int world_size, LocalMemory& memory, Health& health,
                               std::chrono::milliseconds deadline)
    : rank_(rank),
      half_(round_bytes(world_size)),
      memory_(memory),
      health_(health),
      deadline_(deadline) {}

GroupCounters& LocalTransport::counters(int index) const {
  const CommGroup& group = *exchange_->group;
  int rank = group.ranks[static_cast<size_t>(index)];
  return memory_.control(rank).groups[group.id];
}

int64_t LocalTransport::staging_offset(int to, int64_t round) const {
  int64_t slot = exchange_->same_for_all ? 0 : to * exchange_->piece * size_of(exchange_->dtype);
  return round % 2 * half_ + slot;
}

void LocalTransport::begin(const Exchange& exchange) {
  exchange_ = &exchange;
  const CommGroup& group = *exchange.group;
  TESSERA_CHECK(group.id < kMaxGroups, cat("group ", group.name, " is number ", group.id));
  peers_.clear();
  for (int k = 0; k < group.size(); ++k)
    if (reaches(group.ranks[static_cast<size_t>(k)])) peers_.push_back(k);
  if (peers_.empty()) return;

  base_ = rounds_before_[static_cast<size_t>(group.id)];
  read_in_place_ = 0;
  Location location;
  if (!exchange.copies_source)
    location = memory_.find(exchange.source, exchange.source_elements * size_of(exchange.dtype));
  direct_ = location.segment >= 0;
  GroupCounters& own = counters(group.index);
  own.identity = exchange.identity;
  own.source = location;
  if (direct_) advance(own.offered, base_ + static_cast<uint32_t>(exchange.rounds));
}

void LocalTransport::offer(int64_t round) {
  if (peers_.empty() || direct_) return;
  // The half is free once all have read what it held two rounds ago.
  if (round >= 2) {
    for (int k : peers_)
      wait_for(counters(k).released, base_ + static_cast<uint32_t>(round - 1), k);
  }
  std::byte* staging = memory_.staging(rank_);
  int64_t size = size_of(exchange_->dtype);
  for (int k : peers_) {
    const Part& part = exchange_->given[static_cast<size_t>(k)];
    Piece piece = exchange_->piece_of(part, round);
    if (piece.elements() > 0) {
      copy_rows(exchange_->source_of(part, piece), part.stride * size,
                staging + staging_offset(k, round), piece.columns * size, piece.rows,
                piece.columns * size);
    }
    if (exchange_->same_for_all) break;
  }
  advance(counters(exchange_->group->index).offered, base_ + static_cast<uint32_t>(round + 1));
}

PieceView LocalTransport::take(int from, int64_t round) {
  GroupCounters& theirs = counters(from);
  wait_for(theirs.offered, base_ + static_cast<uint32_t>(round + 1), from);
  if (round == 0 && theirs.identity != exchange_->identity) out_of_step(from);
  const Part& part = exchange_->taken[static_cast<size_t>(from)];
  Piece piece = exchange_->piece_of(part, round);
  int64_t size = size_of(exchange_->dtype);
  int rank = exchange_->group->ranks[static_cast<size_t>(from)];
  if (theirs.source.segment < 0)
    return {memory_.staging(rank) + staging_offset(exchange_->group->index, round),
            piece.columns * size};
  if (round == 0) ++read_in_place_;
  int64_t first = part.offset + piece.row * part.stride + piece.column;
  int64_t elements = (piece.rows - 1) * part.stride + piece.columns;
  Location at = theirs.source;
  at.offset += first * size;
  return {memory_.resolve(rank, at, elements * size), part.stride * size};
}

void LocalTransport::release(int64_t round) {
  // Who is read in place waits for the last round only. Of whom nothing was taken it is not known.
  const bool all_in_place = read_in_place_ == peers_.size();
  if (peers_.empty() || (all_in_place && round + 1 < exchange_->rounds)) return;
  advance(counters(exchange_->group->index).released, base_ + static_cast<uint32_t>(round + 1));
}

void LocalTransport::end() {
  if (peers_.empty()) return;
  uint32_t all = base_ + static_cast<uint32_t>(exchange_->rounds);
  for (int k : peers_) wait_for(counters(k).released, all, k);
  rounds_before_[static_cast<size_t>(exchange_->group->id)] = all;
}

// What the peer's exchange is, it says itself to whom waits for it.
void LocalTransport::out_of_step(int index) {
  int peer = exchange_->group->ranks[static_cast<size_t>(index)];
  Health::Wait waiting(health_, rank_, peer);
  health_.compare_calls(rank_, peer, health_.last_call(peer, rank_));
  health_.wait_failed(kNews);
  health_.fail(
      cat("ranks ", rank_, " and ", peer, " are out of step: they are in different calls"));
  health_.check();
  throw InternalError("a failure without a cause");
}

void LocalTransport::wait_for(SharedCounter& counter, uint32_t value, int index) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (reached(counter.value.load(std::memory_order_acquire), value)) return;
    pause_core();
  }
  int peer = exchange_->group->ranks[static_cast<size_t>(index)];
  Health::Wait waiting(health_, rank_, peer);
  RunningTime waited(kLongestLook);
  while (true) {
    bool gone = health_.has_left(peer);
    counter.sleepers.fetch_add(1);
    uint32_t seen = counter.value.load();
    if (!reached(seen, value) && !gone) futex_wait(counter.value, seen);
    counter.sleepers.fetch_sub(1);
    if (reached(counter.value.load(std::memory_order_acquire), value)) return;
    health_.check();
    // Where ranks are threads; between processes the peers' connections see to it.
    health_.compare_calls(rank_, peer, health_.last_call(peer, rank_));
    if (gone) health_.fail(left_the_job(peer));
    if (waited.seconds() >= seconds_of(deadline_)) health_.fail_late(peer, rank_, deadline_);
    health_.check();
  }
}

void LocalTransport::advance(SharedCounter& counter, uint32_t value) {
  // Sequentially consistent with the sleeper's count and load: one of the two sees the other.
  counter.value.store(value);
  if (counter.sleepers.load() != 0) futex_wake_all(counter.value);
}

}  // namespace tessera
