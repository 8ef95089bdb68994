#include "comm/health.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

Health::Health(int world_size)
    : left_(static_cast<size_t>(world_size)),
      waits_(static_cast<size_t>(world_size)),
      ask_([this](int rank) { return waits_for(rank); }),
      calls_(static_cast<size_t>(world_size)) {}

void Health::fail(std::string cause) {
  std::vector<Action> before, actions;
  {
    std::unique_lock lock(mutex_);
    if (reporter_) {
      // On return there is a failure, but within an action.
      if (*reporter_ != std::this_thread::get_id()) changed_.wait(lock, [&] { return failed(); });
      return;
    }
    reporter_ = std::this_thread::get_id();
    cause_ = std::move(cause);
    before = std::move(before_);
  }
  for (const Action& action : before) action(cause_);
  {
    std::lock_guard lock(mutex_);
    actions = std::move(actions_);
    failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  // The cause does not change any more.
  for (const Action& action : actions) action(cause_);
}

void Health::before_failure(Action action) {
  {
    std::lock_guard lock(mutex_);
    if (!reporter_) {
      before_.push_back(std::move(action));
      return;
    }
  }
  action(cause_);
}

void Health::on_failure(Action action) {
  {
    std::lock_guard lock(mutex_);
    if (!failed()) {
      actions_.push_back(std::move(action));
      return;
    }
  }
  action(cause_);
}

std::string Health::cause() const {
  std::lock_guard lock(mutex_);
  return cause_;
}

void Health::check() const {
  if (failed()) throw CommError(cause());
}

bool Health::wait_failed(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return failed(); });
}

void Health::leave(int rank) {
  {
    std::lock_guard lock(mutex_);
    left_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Health::wait_left(const std::vector<int>& ranks, std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] {
    return failed() ||
           std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return has_left(rank); });
  });
}

double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

std::string seconds_text(std::chrono::milliseconds time) { return cat(seconds_of(time), " s"); }

Health::Wait::Wait(Health& health, int self, int rank, std::string_view call)
    : health_(health), self_(self), rank_(rank), call_(call) {
  std::lock_guard lock(health_.waits_mutex_);
  health_.waits_[index(self_)].push_back(this);
}

Health::Wait::~Wait() {
  std::lock_guard lock(health_.waits_mutex_);
  std::erase(health_.waits_[index(self_)], this);
}

Health::Waiting Health::waits_for(int rank) const {
  std::lock_guard lock(waits_mutex_);
  const std::vector<const Wait*>& waits = waits_[index(rank)];
  if (waits.empty()) return {};
  const Wait& oldest = *waits.front();
  if (!oldest.call_.empty()) return {oldest.rank_, std::string(oldest.call_)};
  Meeting meeting = last_call(rank, oldest.rank_);
  return {oldest.rank_, meeting.call ? *meeting.call : ""};
}

std::vector<int> Health::waited_for(int rank) const {
  std::lock_guard lock(waits_mutex_);
  std::vector<int> ranks;
  for (const Wait* wait : waits_[index(rank)]) {
    if (std::ranges::find(ranks, wait->rank_) == ranks.end()) ranks.push_back(wait->rank_);
  }
  return ranks;
}

void Health::fail_late(int rank, int self, std::chrono::milliseconds deadline) {
  // Others that are late too ask for whom this rank waits: until it has failed, for that one.
  const Wait waiting(*this, self, rank);
  // A process that was stopped finds its deadlines over when it goes on. Others have given it up by
  // then, and what they said of it is about to arrive.
  constexpr std::chrono::milliseconds kNews{300};
  if (wait_failed(kNews)) return;
  int waiter = self, culprit = rank;
  std::string meanwhile;  // what `rank` does
  for (size_t hops = 0; hops < waits_.size() && !failed(); ++hops) {
    std::optional<Waiting> next = ask_(culprit);
    if (!next || next->rank == kNobody) break;
    if (hops == 0 && !next->call.empty())
      meanwhile = cat(": it waits for rank ", next->rank, " in ", next->call);
    waiter = std::exchange(culprit, next->rank);
    if (culprit == self) {  // they wait for each other
      fail(cat("rank ", rank, " did not answer rank ", self, " within ", seconds_text(deadline),
               meanwhile));
      return;
    }
  }
  fail(cat("rank ", culprit, " did not answer rank ", waiter, " within ", seconds_text(deadline)));
}

void Health::begin_call(int self, const std::vector<int>& ranks, std::string call) {
  auto shared = std::make_shared<const std::string>(std::move(call));
  std::lock_guard lock(calls_mutex_);
  std::vector<Meeting>& meetings = calls_[index(self)];
  meetings.resize(calls_.size());
  for (int rank : ranks) {
    Meeting& meeting = meetings[index(rank)];
    ++meeting.number;
    meeting.call = shared;
  }
}

Health::Meeting Health::last_call(int self, int rank) const {
  std::lock_guard lock(calls_mutex_);
  const std::vector<Meeting>& meetings = calls_[index(self)];
  return meetings.empty() ? Meeting{} : meetings[index(rank)];
}

void Health::compare_calls(int self, int rank, const Meeting& theirs) {
  Meeting own = last_call(self, rank);
  if (own.number == theirs.number && own.number != 0 && *own.call != *theirs.call)
    fail_out_of_step(self, *own.call, rank, *theirs.call);
}

void Health::fail_out_of_step(int self, const std::string& own, int rank,
                              const std::string& theirs) {
  auto in = [](int who, const std::string& call) { return cat("rank ", who, " is in ", call); };
  std::string both = self < rank ? cat(in(self, own), ", ", in(rank, theirs))
                                 : cat(in(rank, theirs), ", ", in(self, own));
  fail(cat("ranks ", std::min(self, rank), " and ", std::max(self, rank),
           " are out of step: ", both));
}

std::string left_the_job(int rank) { return cat("rank ", rank, " has left the job"); }

}  // namespace tessera
