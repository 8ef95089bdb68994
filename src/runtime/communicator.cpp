#include "runtime/communicator.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_stacks.h"

namespace tessera {

std::string_view name(CommAction action) {
  static constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce",
                                                "all_to_all"};
  return kNames[static_cast<int>(action)];
}

int64_t CommCall::input_elements() const {
  bool all_parts = action == CommAction::kReduceScatter || action == CommAction::kAllToAll;
  return outer * inner * (all_parts ? group->size() : 1);
}

int64_t CommCall::output_elements() const {
  bool all_parts = action == CommAction::kAllGather || action == CommAction::kAllToAll;
  return outer * inner * (all_parts ? group->size() : 1);
}

Communicator::Communicator(int rank, int world_size, Options options)
    : rank_(rank), world_size_(world_size), options_(options) {
  TESSERA_CHECK(rank >= 0 && rank < world_size);
  auto world = std::make_unique<CommGroup>();
  for (int r = 0; r < world_size; ++r) world->ranks.push_back(r);
  world->index = rank;
  world->name = "world";
  groups_.push_back(std::move(world));
}

Communicator::~Communicator() { stop(); }

void Communicator::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Communicator::settle() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !running_ && (queue_.empty() || failure_); });
}

std::string Communicator::unfinished_call() const {
  std::lock_guard lock(mutex_);
  return running_ || failure_ ? label_ : "";
}

bool Communicator::unfinished() const {
  std::lock_guard lock(mutex_);
  return finished_ < started_ && !failure_;
}

const CommGroup& Communicator::make_group(std::vector<int> ranks, std::string name) {
  auto group = std::make_unique<CommGroup>();
  group->id = static_cast<int>(groups_.size());
  group->name = std::move(name);
  auto own = std::find(ranks.begin(), ranks.end(), rank_);
  TESSERA_CHECK(own != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()),
                cat("group ", group->name, " of rank ", rank_));
  group->index = static_cast<int>(own - ranks.begin());
  group->ranks = std::move(ranks);
  prepare_group(*group);
  groups_.push_back(std::move(group));
  return *groups_.back();
}

Communicator::Ticket Communicator::start(const CommCall& call) {
  TESSERA_CHECK(call.group && call.outer >= 0 && call.inner >= 0, std::string(call.label));
  Ticket ticket;
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(call);
    ticket = ++started_;
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
  return ticket;
}

void Communicator::listen(ExchangeListener* listener) {
  std::lock_guard lock(mutex_);
  listener_ = listener;
}

void Communicator::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const double start = finished_ >= ticket ? 0 : monotonic_seconds();
  changed_.wait(lock, [&] { return finished_ >= ticket || failure_; });
  if (start > 0) seconds_waited_ += monotonic_seconds() - start;
  if (finished_ < ticket) std::rethrow_exception(failure_);
}

void Communicator::loop() {
  ShowsStack shows("exchanges");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!queue_.empty() && !failure_); });
    if (stopping_) return;
    CommCall call = queue_.front();
    queue_.pop_front();
    running_ = true;
    label_ = call.label;
    ExchangeListener* listener = listener_;
    lock.unlock();
    if (listener) listener->collective_begins(call);
    std::exception_ptr failure;
    try {
      if (call.ran) call.ran->begin = monotonic_nanoseconds();
      perform(call);
      if (call.ran) call.ran->end = monotonic_nanoseconds();
    } catch (...) {
      failure = std::current_exception();
    }
    if (listener) listener->collective_ends(call, !failure);
    lock.lock();
    running_ = false;
    if (failure)
      failure_ = failure;
    else
      ++finished_;
    changed_.notify_all();
  }
}

}  // namespace tessera
