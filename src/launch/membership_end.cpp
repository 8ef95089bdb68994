// What a member does beside its rounds: signs of life, a look for nodes that wait, the end.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/membership.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Phase = MembershipState::Phase;

constexpr milliseconds kLookForOthers{500}, kLookForEnd{200};

// Whatever a worker printed: one line that can be shown. Of its last lines that is the last.
std::string one_line(const std::string& end) {
  std::string text = end.substr(0, end.find('\n'));
  if (constexpr std::string_view kLines = "; its last lines:"; text.ends_with(kLines))
    text.replace(text.size() - kLines.size(), kLines.size(),
                 cat(": ", trim(std::string_view(end).substr(end.rfind('\n') + 1))));
  text.resize(std::min(text.size(), size_t{1000}));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

void Membership::watch(OnWaiting on_waiting) {
  std::lock_guard calling(calling_);
  std::lock_guard lock(mutex_);
  on_waiting_ = std::move(on_waiting);
  told_waiting_ = false;
}

void Membership::keep_alive_loop() {
  const auto interval = std::chrono::duration_cast<milliseconds>(settings_.keep_alive_interval);
  auto next_sign = steady_clock::now() + interval;
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool watches = on_waiting_ != nullptr;
    wake_.wait_for(lock, std::min(watches ? kLookForOthers : kLookForEnd, interval),
                   [this] { return stop_; });
    if (stop_) return;
    lock.unlock();
    try {
      if (steady_clock::now() >= next_sign) {
        next_sign = steady_clock::now() + interval;
        store_->keep_alive();
        if (told) TESSERA_INFO(cat(settings_.place, " answers again"));
        told = false;
      }
      if (watches) look_for_waiting();
    } catch (const Error& error) {
      // The round goes on without it.
      if (!told) TESSERA_WARN(cat(error.what(), "; while that is so no node can join"));
      told = true;
    }
    lock.lock();
  }
}

void Membership::look_for_waiting() {
  View view = look();
  MembershipState known;
  {
    std::lock_guard lock(mutex_);
    if (!last_) return;
    known = last_state();
    known.members = last_->nodes;
    known.store = last_->store;
  }
  if (!view.state) {  // lost by what kept it
    known.phase = Phase::kRunning;
    write(view, known);
    return;
  }
  if (view.state->phase == Phase::kClosed) return;
  std::vector<MemberNode> reasons = view.state->waiting;
  const bool without_it = view.state->round > known.round;
  if (without_it) {
    reasons = view.state->members;
  } else if (static_cast<int>(view.state->members.size()) >= settings_.max_nodes) {
    return;
  }
  const auto node = std::ranges::find_if(
      reasons, [&](const MemberNode& one) { return view.present.contains(one.id); });
  const bool any = node != reasons.end();
  std::lock_guard calling(calling_);
  OnWaiting call;
  {
    std::lock_guard lock(mutex_);
    if (without_it ? !any : any == told_waiting_) return;
    told_waiting_ = any;
    call = without_it ? std::exchange(on_waiting_, nullptr) : on_waiting_;
  }
  if (call) call(any ? &*node : nullptr, without_it);
}

void Membership::close(const JobEnd& end) {
  JobEnd kept = end;
  kept.text = one_line(end.text);
  try {
    for (int attempt = 0; attempt < 20; ++attempt) {
      View view = look();
      if (!view.state || view.state->phase == Phase::kClosed) return;
      MembershipState next = *view.state;
      next.phase = Phase::kClosed;
      next.end = kept;
      if (store_->replace_by_last(view.text, next.to_text())) return;
    }
  } catch (const Error& error) {
    TESSERA_WARN(cat("nobody could be told that the job has ended: ", error.what()));
  }
}

void Membership::wait_for_others(milliseconds longest) {
  auto deadline = steady_clock::now() + longest;
  try {
    while (steady_clock::now() < deadline) {
      std::set<std::string> others = look().present;
      others.erase(self_.id);
      if (others.empty()) return;
      std::this_thread::sleep_for(kLookForEnd);
    }
  } catch (const Error&) {
  }
}

void Membership::leave(const JobEnd& if_last) {
  store_->leave();
  try {
    {
      std::lock_guard lock(looking_);
      present_.clear();
    }
    View view = look();
    bool last = view.state && view.state->phase != Phase::kClosed;
    for (const std::string& id : view.present) last = last && id == self_.id;
    if (last) close(if_last);
  } catch (const Error&) {
    // Without the store nobody can go on either.
  }
}

}  // namespace tessera
