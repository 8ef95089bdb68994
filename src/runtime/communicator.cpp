#include "runtime/communicator.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

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

void Communicator::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= ticket || failure_; });
  if (finished_ < ticket) std::rethrow_exception(failure_);
}

void Communicator::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!queue_.empty() && !failure_); });
    if (stopping_) return;
    CommCall call = queue_.front();
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      perform(call);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    running_ = false;
    if (failure)
      failure_ = failure;
    else
      ++finished_;
    changed_.notify_all();
  }
}

void Communicator::barrier(std::string_view label) {
  int32_t one = 1, all = 0;
  run({CommAction::kAllReduce, &world(), DType::kI32, DType::kI32, Reduction::kSum, 1, 1, &one,
       &all, label});
  TESSERA_CHECK(all == world_size_, std::string(label));
}

std::vector<std::string> Communicator::exchange(const std::string& text, std::string_view label) {
  auto n = static_cast<size_t>(world_size_);
  auto size = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(n);
  run({CommAction::kAllGather, &world(), DType::kI64, DType::kI64, Reduction::kSum, 1, 1, &size,
       sizes.data(), label});
  // In whole 8-byte words: every dtype here is a number.
  int64_t words = *std::max_element(sizes.begin(), sizes.end()) / 8 + 1;
  auto width = static_cast<size_t>(words);
  std::vector<int64_t> own(width), all(width * n);
  std::memcpy(own.data(), text.data(), text.size());
  run({CommAction::kAllGather, &world(), DType::kI64, DType::kI64, Reduction::kSum, 1, words,
       own.data(), all.data(), label});
  std::vector<std::string> texts;
  for (size_t r = 0; r < n; ++r) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + r * width),
                       static_cast<size_t>(sizes[r]));
  }
  return texts;
}

}  // namespace tessera
