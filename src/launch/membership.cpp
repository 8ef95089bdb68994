#include "launch/membership.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "base/wait_notice.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Phase = MembershipState::Phase;

// Between looks at what may have changed without the text: who is there.
constexpr milliseconds kLookAround{500}, kAskAgain{200};

bool contains(const std::vector<MemberNode>& nodes, const std::string& id) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const MemberNode& n) { return n.id == id; });
}

void drop(std::vector<MemberNode>& nodes, const std::string& id) {
  std::erase_if(nodes, [&](const MemberNode& n) { return n.id == id; });
}

std::vector<std::string> ids_of(const std::vector<MemberNode>& nodes) {
  std::vector<std::string> ids;
  for (const MemberNode& node : nodes) ids.push_back(node.id);
  return ids;
}

std::string hosts_of(const std::vector<MemberNode>& nodes) {
  std::vector<std::string> hosts;
  for (const MemberNode& node : nodes) hosts.push_back(node.host);
  return join(hosts, ", ");
}

int size_of(const std::vector<MemberNode>& nodes) { return static_cast<int>(nodes.size()); }

}  // namespace

Membership::Membership(std::unique_ptr<MembershipStore> store, Settings settings)
    : store_(std::move(store)),
      settings_(std::move(settings)),
      self_{random_id(), host_name().substr(0, 200), settings_.node_rank} {
  store_->appear(self_.id);
  thread_ = std::thread([this] { keep_alive_loop(); });
}

Membership::~Membership() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  store_->leave();
}

std::optional<Round> Membership::join(const LastRound& last, const std::function<Endpoint()>& serve,
                                      const std::function<bool()>& should_stop) {
  watch(nullptr);
  waits_ = false;
  unreached_.clear();
  seen_members_.clear();
  present_.clear();
  stale_since_.reset();
  rank_taken_since_.reset();
  bool told = false;
  WaitNotice notice;
  auto begin = steady_clock::now();
  while (!should_stop()) {
    try {
      View view = look();
      if (auto round = step(view, last, serve)) {
        std::lock_guard lock(mutex_);
        return last_ = round;
      }
      if (told) TESSERA_INFO(cat("the job at ", settings_.place, " is in reach again"));
      told = false;
      auto now = steady_clock::now();
      if (waits_) begin = now;  // for as long as the job runs
      bool enough = view.state && size_of(view.state->members) >= settings_.min_nodes;
      auto longest = settings_.join_timeout +
                     (enough ? settings_.last_call + settings_.longest_silence : Seconds(0));
      if (now - begin >= longest) throw CommError(describe_missing(view));
      if (view.state && !enough && !waits_ && notice.is_due()) {
        const auto& here = view.state->members;
        TESSERA_INFO(cat("Waiting for nodes at ", settings_.place, ": ", here.size(),
                         " of at least ", settings_.min_nodes, " are here (", hosts_of(here), ")"));
      }
      store_->wait(view.text.version, kLookAround);
    } catch (const MembershipUnavailableError& error) {
      if (!told)
        TESSERA_WARN(cat(error.what(), "; trying for ", settings_.join_timeout.count(), " s"));
      told = true;
      if (steady_clock::now() - begin >= settings_.join_timeout) throw;
      std::this_thread::sleep_for(kAskAgain);
    }
  }
  return std::nullopt;
}

void Membership::require_all_of(const Round& round) {
  const auto now = steady_clock::now();
  if (now - required_at_ < kLookAround) return;
  required_at_ = now;
  View view;
  try {
    view = look();
  } catch (const MembershipUnavailableError&) {
    return;  // may be away once the round has begun
  }
  if (!view.state || view.state->round < round.number) return;
  if (view.state->round > round.number)
    throw CommError("the other nodes have begun another one without this node");
  for (size_t i = 0; i < round.nodes.size(); ++i) {
    const MemberNode& node = round.nodes[i];
    if (node.id != self_.id && !view.present.contains(node.id))
      throw CommError(cat("node ", i, " on ", node.host, " is gone"));
  }
}

Membership::View Membership::look() {
  View view;
  view.text = store_->read();
  if (view.text.version == 0) return view;
  view.state = MembershipState::from_text(view.text.text);
  if (!view.state) {
    throw CommError(cat("what is kept at ", settings_.place,
                        " for this job is not of this version of tessera: start the same tessera "
                        "everywhere, or give the job another --rdzv_id"));
  }
  std::set<std::string> known(view.state->expected.begin(), view.state->expected.end());
  for (const auto* nodes : {&view.state->members, &view.state->waiting}) {
    for (const MemberNode& node : *nodes) known.insert(node.id);
  }
  // Who was there a moment ago still is, for all that one can know.
  auto now = steady_clock::now();
  std::lock_guard lock(looking_);
  if (now - present_at_ >= kLookAround) {
    present_.clear();
    present_at_ = now;
  }
  std::set<std::string> unknown;
  for (const std::string& id : known) {
    if (!present_.contains(id)) unknown.insert(id);
  }
  if (!unknown.empty()) present_.merge(store_->present(unknown));
  for (const std::string& id : known) {
    if (present_.contains(id)) view.present.insert(id);
  }
  return view;
}

bool Membership::write(const View& view, const MembershipState& state) {
  return store_->replace(view.text, state.to_text());
}

// Does what is to be done next by this node, if anything is; the round if it has a place in one.
std::optional<Round> Membership::step(const View& view, const LastRound& last,
                                      const std::function<Endpoint()>& serve) {
  if (!view.state) {
    begin_job(view);
    return std::nullopt;
  }
  const MembershipState& state = *view.state;
  if (state.phase == Phase::kClosed) {
    throw JobHasEndedError(state.end,
                           cat("the job at ", settings_.place, " has ended",
                               state.end.text.empty() ? "" : cat(" (", state.end.text, ")"),
                               ": for a new one start all nodes again, with another --rdzv_id"));
  }
  require_same_settings(state);
  const bool member = contains(state.members, self_.id);
  if (state.phase == Phase::kRunning) {
    if (member && (!last_ || state.round > last_->number)) return round_of(state);
    const bool stale = !member && is_stale(view);
    if (member || stale) {
      form_next(view, last, stale);
    } else {
      wait_for_place(view);
    }
    return std::nullopt;
  }
  MembershipState next = state;
  std::erase_if(next.members, [&](const MemberNode& n) {
    return n.id != self_.id && !view.present.contains(n.id);
  });
  if (next.members.size() != state.members.size() || !member) {
    View living = view;
    living.state = next;
    if (!member) {
      take_place(living);
    } else {
      write(living, next);
    }
    return std::nullopt;
  }
  if (ids_of(state.members) != seen_members_) {
    seen_members_ = ids_of(state.members);
    members_since_ = steady_clock::now();
  }
  if (state.members.front().id != self_.id || !is_complete(view, state)) return std::nullopt;
  next.phase = Phase::kRunning;
  next.expected.clear();
  next.members = by_rank(state.members);
  next.store = serve();
  // The store is here: so this is node 0, unless nodes have numbers that were asked for.
  if (!settings_.node_rank) {
    drop(next.members, self_.id);
    next.members.insert(next.members.begin(), self_);
  }
  return write(view, next) ? std::optional(round_of(next)) : std::nullopt;
}

// Its nodes may only have been out of reach of what keeps the text, and give a sign of life soon.
bool Membership::is_stale(const View& view) {
  const auto& members = view.state->members;
  bool alone = std::none_of(members.begin(), members.end(),
                            [&](const MemberNode& node) { return view.present.contains(node.id); });
  auto now = steady_clock::now();
  if (!alone) stale_since_.reset();
  if (alone && !stale_since_) stale_since_ = now;
  return alone && now - *stale_since_ >= settings_.longest_silence;
}

// As this node knows it, without nodes; of a job that has not begun if it was in no round.
MembershipState Membership::last_state() const {
  MembershipState state;
  state.job_id = last_ ? last_->job_id : random_id();
  state.min_nodes = settings_.min_nodes;
  state.max_nodes = settings_.max_nodes;
  state.max_restarts = settings_.max_restarts;
  state.round = last_ ? last_->number : 0;
  state.restarts = last_ ? last_->restarts : 0;
  return state;
}

// What kept the text may have been replaced by one that knows nothing: then the job goes on.
void Membership::begin_job(const View& view) {
  MembershipState state = last_state();
  if (last_) ++state.round;
  state.members = {self_};
  write(view, state);
}

void Membership::form_next(const View& view, const LastRound& last, bool stale) {
  MembershipState next = *view.state;
  std::vector<MemberNode> before = next.members;
  next.phase = Phase::kForming;
  ++next.round;
  next.restarts += last.counts && !stale ? 1 : 0;
  next.quick = !stale;
  next.expected.clear();
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string& id = before[i].id;
    bool lost = last.lost.contains(static_cast<int>(i)) && !stale;
    if (id != self_.id && !lost && view.present.contains(id)) next.expected.push_back(id);
  }
  drop(next.waiting, self_.id);
  next.members = {self_};
  if (!write(view, next) || !stale) return;
  TESSERA_WARN(cat("the nodes of round ", view.state->round, " of the job at ", settings_.place,
                   " are all gone: going on with it from its newest checkpoint"));
}

// All places are taken, or the round runs.
void Membership::wait_for_place(const View& view) {
  if (view.state->phase == Phase::kRunning && !contains(view.state->waiting, self_.id))
    require_reach(*view.state);
  if (!waits_) {
    int nodes = size_of(view.state->members);
    TESSERA_INFO(cat("The job runs on ", nodes, nodes == 1 ? " node" : " nodes", " of at most ",
                     settings_.max_nodes, ": this one waits for a place"));
  }
  waits_ = true;
  MembershipState next = *view.state;
  std::erase_if(next.waiting, [&](const MemberNode& n) {
    return n.id != self_.id && !view.present.contains(n.id);
  });
  if (!contains(next.waiting, self_.id)) next.waiting.push_back(self_);
  if (next.waiting.size() != view.state->waiting.size() || !contains(view.state->waiting, self_.id))
    write(view, next);
}

// Else the others would end their round for one that they could not meet.
void Membership::require_reach(const MembershipState& state) {
  unreached_.clear();
  if (!settings_.require_reach) return;
  const MemberNode& first = state.members.front();
  try {
    settings_.require_reach(state.store);
  } catch (const CommError& error) {
    unreached_ = first.id;
    throw MembershipUnavailableError(cat("this node does not reach the store of round ",
                                         state.round, " at ", to_string(state.store),
                                         ", node 0 on ", first.host, ": ", error.what()));
  }
}

// Survivors of the last round have theirs before others.
void Membership::take_place(const View& view) {
  MembershipState next = *view.state;
  std::erase_if(next.expected, [&](const std::string& id) {
    return id == self_.id || !view.present.contains(id) || contains(next.members, id);
  });
  // Where they are too few without it, it tries once more.
  if (view.present.contains(unreached_) &&
      size_of(next.members) + static_cast<int>(next.expected.size()) >= settings_.min_nodes)
    throw MembershipUnavailableError("this node does not reach one of the others");
  const bool survivor = std::find(view.state->expected.begin(), view.state->expected.end(),
                                  self_.id) != view.state->expected.end();
  const int kept = survivor ? 0 : static_cast<int>(next.expected.size());
  if (size_of(next.members) + kept >= settings_.max_nodes) return wait_for_place(view);
  if (!may_take_rank(view)) return;
  drop(next.waiting, self_.id);
  next.members.push_back(self_);
  if (write(view, next)) waits_ = false;
}

// A node of that number may be an earlier start of this one, of which it is not known yet that it
// is gone.
bool Membership::may_take_rank(const View& view) {
  if (!settings_.node_rank) return true;
  bool taken = std::any_of(view.state->members.begin(), view.state->members.end(),
                           [&](const MemberNode& n) { return n.wanted_rank == self_.wanted_rank; });
  auto now = steady_clock::now();
  if (!taken) {
    rank_taken_since_.reset();
    return true;
  }
  if (!rank_taken_since_) rank_taken_since_ = now;
  if (now - *rank_taken_since_ > settings_.longest_silence + std::chrono::seconds(1)) {
    throw CommError(cat("a node with --node_rank ", *settings_.node_rank, " has already joined at ",
                        settings_.place, ": give each node its own number, all of them or none"));
  }
  return false;
}

bool Membership::is_complete(const View& view, const MembershipState& state) {
  if (size_of(state.members) < settings_.min_nodes) return false;
  if (size_of(state.members) == settings_.max_nodes) return true;
  auto is_awaited = [&](const std::string& id) {
    return view.present.contains(id) && !contains(state.members, id);
  };
  bool all = std::none_of(state.expected.begin(), state.expected.end(), is_awaited) &&
             std::none_of(state.waiting.begin(), state.waiting.end(),
                          [&](const MemberNode& n) { return is_awaited(n.id); });
  return (state.quick && all) || steady_clock::now() - members_since_ >= settings_.last_call;
}

// Numbers that were asked for, others in the order of arrival.
std::vector<MemberNode> Membership::by_rank(const std::vector<MemberNode>& nodes) const {
  std::vector<MemberNode> others, ranked(nodes.size());
  for (const MemberNode& node : nodes) {
    auto rank = static_cast<size_t>(node.wanted_rank.value_or(-1));
    if (rank < ranked.size() && ranked[rank].id.empty()) {
      ranked[rank] = node;
    } else {
      others.push_back(node);
    }
  }
  auto next = others.begin();
  for (MemberNode& node : ranked) {
    if (node.id.empty()) node = *next++;
  }
  return ranked;
}

Round Membership::round_of(const MembershipState& state) const {
  Round round{state.round, 0, state.restarts, state.job_id, state.members, state.store};
  while (state.members[static_cast<size_t>(round.node_rank)].id != self_.id) ++round.node_rank;
  return round;
}

void Membership::require_same_settings(const MembershipState& state) const {
  if (state.min_nodes == settings_.min_nodes && state.max_nodes == settings_.max_nodes &&
      state.max_restarts == settings_.max_restarts)
    return;
  auto words = [](int least, int most, int restarts) {
    return cat("--nnodes ", least, ":", most, " --max_restarts ", restarts);
  };
  throw CommError(cat("the job at ", settings_.place, " was started with ",
                      words(state.min_nodes, state.max_nodes, state.max_restarts),
                      ", this node with ",
                      words(settings_.min_nodes, settings_.max_nodes, settings_.max_restarts),
                      ": give all nodes the same"));
}

std::string Membership::describe_missing(const View& view) const {
  int there = view.state ? size_of(view.state->members) : 0;
  return cat(there, " of at least ", settings_.min_nodes,
             settings_.min_nodes == 1 ? " node" : " nodes", " arrived at ", settings_.place,
             " within ", settings_.join_timeout.count(), " s",
             there > 0 ? cat(" (", hosts_of(view.state->members), ")") : "",
             ": start them all, or give --rdzv_conf join_timeout=SECONDS");
}

}  // namespace tessera
