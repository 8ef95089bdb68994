#include "launch/node_group.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "base/wait_notice.h"

namespace tessera {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookAgain{50};
constexpr std::chrono::seconds kLeaveTimeout{30};

milliseconds seconds(double count) { return milliseconds(static_cast<int64_t>(count * 1000)); }

std::string place_of(int node, const NodeRecord& record) { return cat(node, " on ", record.host); }

// There once the agent of that identity has ended.
std::string gone_key(const std::string& agent) { return cat("agent/gone/", agent); }

// Holds the identity of the agent that has the place.
std::string claim_key(int attempt, int node, int turn) {
  return cat("agent/", attempt, "/claim/", node, "/", turn);
}

}  // namespace

NodeGroup::NodeGroup(const RunOptions& options, std::string token)
    : options_(options),
      job_store_(options, std::move(token)),
      notice_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

NodeGroup::NodeGroup(const RunOptions& options, std::string token, int round,
                     std::unique_ptr<TcpStoreServer> server)
    : options_(options),
      job_store_(options, std::move(token), std::move(server)),
      attempt_(round),
      notice_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

NodeGroup::~NodeGroup() { close_attempt(); }

void NodeGroup::connect(const std::function<void()>& while_waiting) {
  store_ = job_store_.connect(while_waiting);
  // Ahead of any claim: whenever this agent is killed, what it has is free again.
  if (options_.nnodes > 1) store_->set_at_end(gone_key(id_), host_name());
}

std::string NodeGroup::job_id() {
  store_->replace("agent/job_id", std::nullopt, random_id());
  return store_->find("agent/job_id").value();
}

std::string NodeGroup::key(std::string_view name) const {
  return cat("agent/", attempt_, "/", name);
}

// A place that nobody has, or one whose node is gone before the nodes have met.
std::optional<NodeGroup::Claim> NodeGroup::claim(int attempt, int node) {
  for (int turn = 1;; ++turn) {
    const std::string claim = claim_key(attempt, node, turn);
    if (store_->replace(claim, std::nullopt, id_)) return Claim{attempt, node, turn};
    if (!store_->find(gone_key(store_->find(claim).value_or(""))) ||
        store_->find(cat("agent/", attempt, "/met")))
      return std::nullopt;
  }
}

// The number asked for, else the one of the last attempt, else the lowest that is free.
NodeGroup::Claim NodeGroup::claim_place(int attempt) {
  std::string place = to_string(job_store_.address());
  if (options_.node_rank) {
    if (auto own = claim(attempt, *options_.node_rank)) return *own;
    throw CommError(cat("a node with --node_rank ", *options_.node_rank, " has already joined at ",
                        place, ": give each node its own number, all of them or none"));
  }
  if (node_rank_ >= 0) {
    if (auto same = claim(attempt, node_rank_)) return *same;
  }
  for (int node = 0; node < options_.nnodes; ++node) {
    if (auto free = claim(attempt, node)) return *free;
  }
  throw_no_place();
}

void NodeGroup::throw_no_place() const {
  throw CommError(cat("the job at ", to_string(job_store_.address()), " has all its ",
                      options_.nnodes,
                      " nodes already: was this node started twice, or is an older job with the "
                      "same --rdzv_id still running there?"));
}

std::optional<NodePlace> NodeGroup::join(const std::function<bool()>& should_stop) {
  auto deadline = steady_clock::now() + seconds(options_.join_timeout);
  // A node that comes late, in the place of one that was lost, joins the attempt that is open.
  for (; auto text = store_->find(key("end")); ++attempt_) {
    auto ended = JobEnd::from_text(*text);
    bool goes_on = ended && ended->kind == JobEnd::Kind::kFailed && ended->may_retry &&
                   attempt_ < options_.max_restarts;
    if (!goes_on) {
      throw CommError(cat("the job at ", to_string(job_store_.address()),
                          " has ended: start all nodes again, with another --rdzv_id"));
    }
  }
  nodes_.clear();
  NodePlace place;
  place.attempt = attempt_;
  auto kept = std::exchange(kept_, std::nullopt);
  const Claim claimed = kept && kept->attempt == attempt_ ? *kept : claim_place(attempt_);
  place.node_rank = node_rank_ = claimed.node_rank;
  NodeRecord own{host_name(),           options_.nnodes, options_.nproc_per_node,
                 options_.max_restarts, claimed.turn,    job_store_.server() ? 1 : 0,
                 is_known_ ? 1 : 0,     retries_ ? 1 : 0};
  // In place of what a node has written that had this place before.
  const std::string own_key = key(cat("node/", place.node_rank));
  while (!store_->replace(own_key, store_->find(own_key), own.to_text())) {
  }
  WaitNotice notice;
  std::optional<std::string> met;
  while (!(met = store_->find(key("met")))) {
    if (should_stop()) {
      report({JobEnd::Kind::kInterrupted, 143, false,
              cat("node ", place_of(node_rank_, own), " was interrupted while nodes met")});
      leave();
      return std::nullopt;
    }
    if (find_nodes(place.nodes, own)) {
      // What the first says that sees them all holds for all: one may be gone a moment later.
      store_->replace(key("met"), std::nullopt, to_text(place.nodes));
      continue;
    }
    if (auto end = store_->find(key("end")))
      fail_join(JobEnd::from_text(*end).value_or(JobEnd{}).text);
    if (notice.is_due()) {
      const auto here = arrivals().here;
      TESSERA_INFO(cat("Waiting for nodes at ", to_string(job_store_.address()), ": ", here.size(),
                       " of ", options_.nnodes, " are here (node ", tessera::join(here, ", "),
                       ")"));
    }
    if (steady_clock::now() >= deadline) fail_join(describe_missing());
    std::this_thread::sleep_for(kLookAgain);
  }
  place.nodes = nodes_in(*met);
  if (place.nodes.at(static_cast<size_t>(place.node_rank)).turn != own.turn) throw_no_place();
  place.world_size = 0;
  for (int node = 0; node < options_.nnodes; ++node) {
    if (node == place.node_rank) place.first_rank = place.world_size;
    place.world_size += place.nodes.at(static_cast<size_t>(node)).workers;
  }
  return place;
}

// Adds those that have come to the ones before the first that is missing; whether all are there.
// One that has gone again is missing: another one may come in its place.
bool NodeGroup::find_nodes(std::vector<NodeRecord>& nodes, const NodeRecord& own) {
  while (static_cast<int>(nodes.size()) < options_.nnodes) {
    const int node = static_cast<int>(nodes.size());
    const auto text = store_->find(key(cat("node/", node)));
    const NodeRecord record = NodeRecord::from_text(text.value_or("")).value_or(NodeRecord{"?", 0});
    if (!text || is_gone(*store_, node, record)) return false;
    if (record.nnodes != own.nnodes || record.max_restarts != own.max_restarts) {
      fail_join(cat("node ", place_of(node, record), " was started with --nnodes ", record.nnodes,
                    " --max_restarts ", record.max_restarts, ", node ", place_of(node_rank_, own),
                    " with --nnodes ", own.nnodes, " --max_restarts ", own.max_restarts,
                    ": give all nodes the same"));
    }
    nodes.push_back(record);
  }
  for (size_t node = 0; node < nodes.size(); ++node) {
    if (!is_gone(*store_, static_cast<int>(node), nodes[node])) continue;
    nodes.resize(node);
    return false;
  }
  return true;
}

NodeGroup::Arrivals NodeGroup::arrivals() {
  Arrivals result;
  for (int node = 0; node < options_.nnodes; ++node) {
    auto text = store_->find(key(cat("node/", node)));
    auto record = text ? NodeRecord::from_text(*text) : std::nullopt;
    if (record && !is_gone(*store_, node, *record)) {
      result.here.push_back(place_of(node, *record));
    } else {
      result.missing.push_back(cat(node));
    }
  }
  return result;
}

std::string NodeGroup::describe_missing() {
  const auto [here, missing] = arrivals();
  std::vector<std::string> turned_away;
  if (job_store_.server() && job_store_.server()->has_refused())
    turned_away.emplace_back("one with another job's token");
  if (auto other = job_store_.other_nodes(*store_))
    turned_away.push_back(cat("one with --nnodes ", *other));
  return cat(missing.size() == 1 ? "node " : "nodes ", tessera::join(missing, ", "), " of ",
             options_.nnodes, " did not arrive at ", to_string(job_store_.address()), " within ",
             options_.join_timeout, " s (here: node ", tessera::join(here, ", "), ")",
             turned_away.empty() ? "" : cat("; turned away: ", tessera::join(turned_away, ", ")),
             ": start them all, or give --rdzv_conf join_timeout=SECONDS");
}

// All nodes that are there fail with the words of the first.
void NodeGroup::fail_join(const std::string& text) {
  report({JobEnd::Kind::kFailed, 1, false, text});
  leave();
  throw CommError(text);
}

void NodeGroup::watch(const NodePlace& place) {
  end_.reset();
  stop_ = false;
  nodes_ = place.nodes;
  silent_.clear();
  eventfd_t ignored;
  ::eventfd_read(notice_.get(), &ignored);
  signs_.assign(place.nodes.size(), {"", steady_clock::now()});
  watcher_ = std::thread([this] { watch_loop(); });
}

void NodeGroup::watch_loop() {
  auto pause = seconds(std::min(options_.monitor_interval, options_.keep_alive_interval));
  auto next_sign = steady_clock::now();
  try {
    while (true) {
      if (auto text = store_->find(key("end"))) {
        look_for_first_step();  // it may have come since the last look
        return set_end(
            JobEnd::from_text(*text).value_or(JobEnd{JobEnd::Kind::kLost, 1, false, *text}));
      }
      look_for_first_step();
      std::optional<JobEnd> lost =
          job_store_.server() ? find_gone_node(job_store_.server()->store()) : std::nullopt;
      if (nodes_.size() > 1 && steady_clock::now() >= next_sign) {
        next_sign = steady_clock::now() + seconds(options_.keep_alive_interval);
        store_->add(key(cat("alive/", node_rank_)), 1);
        if (job_store_.server() && !lost) lost = find_silent_node();
      }
      if (lost) report(*lost);
      std::unique_lock lock(mutex_);
      stopping_.wait_for(lock, pause, [this] { return stop_ || look_now_; });
      look_now_ = false;
      if (stop_) return;
    }
  } catch (const CommError& error) {
    const auto server = std::ranges::find(nodes_, 1, &NodeRecord::serves);
    const int lost = server == nodes_.end() ? -1 : static_cast<int>(server - nodes_.begin());
    const std::string who = lost < 0 ? "" : cat("node ", place_of(lost, *server), " was lost: ");
    set_end({JobEnd::Kind::kLost, 1, true,
             cat(who, "the agent that serves the store of the job is gone: ", error.what()), lost});
  }
}

std::optional<JobEnd> NodeGroup::find_silent_node() {
  auto now = steady_clock::now();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    std::string count = store_->find(key(cat("alive/", node))).value_or("");
    SignOfLife& sign = signs_[node];
    if (count != sign.count) {
      sign = {count, now};
    } else if (now - sign.seen > longest_silence(options_)) {
      silent_.insert(static_cast<int>(node));
      return JobEnd{JobEnd::Kind::kFailed, 1, true,
                    cat("node ", place_of(static_cast<int>(node), nodes_[node]),
                        " has given no sign of life for ",
                        duration_cast<std::chrono::seconds>(now - sign.seen).count(),
                        " s: its agent or its host is gone"),
                    static_cast<int>(node)};
    }
  }
  return std::nullopt;
}

// The store has seen the end of its connection, though it has not left.
std::optional<JobEnd> NodeGroup::find_gone_node(Store& store) {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (static_cast<int>(node) == node_rank_ ||
        !is_gone(store, static_cast<int>(node), nodes_[node]) ||
        store.find(key(cat("left/", node))))
      continue;
    return JobEnd{JobEnd::Kind::kFailed, 1, true,
                  cat("node ", place_of(static_cast<int>(node), nodes_[node]),
                      " was lost: its agent has ended, killed or together with its host"),
                  static_cast<int>(node)};
  }
  return std::nullopt;
}

bool NodeGroup::is_gone(Store& store, int node, const NodeRecord& record) const {
  const auto agent = store.find(claim_key(attempt_, node, record.turn));
  return agent && store.find(gone_key(*agent));
}

bool NodeGroup::has_ended(int node) {
  const auto record = NodeRecord::from_text(store_->find(key(cat("node/", node))).value_or(""));
  return silent_.contains(node) || store_->find(key(cat("left/", node))) || !record ||
         is_gone(*store_, node, *record);
}

void NodeGroup::set_end(JobEnd end) {
  {
    std::lock_guard lock(mutex_);
    end_ = std::move(end);
  }
  ::eventfd_write(notice_.get(), 1);
}

std::optional<JobEnd> NodeGroup::end() {
  std::lock_guard lock(mutex_);
  return end_;
}

void NodeGroup::expect_newcomers(int least, bool is_known, bool retries) {
  least_known_ = least;
  is_known_ = is_known;
  retries_ = retries;
}

void NodeGroup::look_for_first_step() {
  if (least_known_ > 0 && !has_first_step_)
    has_first_step_ = store_->find(key("first_step")).has_value();
}

void NodeGroup::report_first_step() {
  if (least_known_ == 0) return;
  try {
    store_->set(key("first_step"), "1");
  } catch (const CommError&) {
    // The watching thread says that the store is gone.
  }
}

bool NodeGroup::are_all_known() const {
  return has_first_step_ || std::ranges::find(nodes_, 0, &NodeRecord::is_known) == nodes_.end();
}

// The newcomer itself where the failure is its own, else the last one: they may be several, and
// what the ranks find different between them does not say whose fault it is.
JobEnd NodeGroup::blame(JobEnd end) {
  if (end.kind != JobEnd::Kind::kFailed || end.lost_node >= 0 || least_known_ == 0 ||
      store_->find(key("first_step")))
    return end;
  const auto is_new = [](const NodeRecord& node) { return node.is_known == 0; };
  const auto known = static_cast<int>(nodes_.size() - std::ranges::count_if(nodes_, is_new));
  if (known < least_known_ || known == static_cast<int>(nodes_.size())) return end;
  if (end.may_retry && std::ranges::any_of(nodes_, &NodeRecord::retries)) return end;
  end.lost_node = node_rank_;
  if (is_known_) {
    end.lost_node = static_cast<int>(nodes_.size()) - 1;
    while (!is_new(nodes_[static_cast<size_t>(end.lost_node)])) --end.lost_node;
  }
  end.may_retry = false;
  return end;
}

void NodeGroup::propose(std::optional<JobEnd> end) {
  {
    std::lock_guard lock(mutex_);
    proposal_ = std::move(end);
  }
  ::eventfd_write(notice_.get(), 1);
}

std::optional<JobEnd> NodeGroup::proposal() {
  eventfd_t ignored;
  ::eventfd_read(notice_.get(), &ignored);
  std::lock_guard lock(mutex_);
  return proposal_;
}

void NodeGroup::report_done() {
  try {
    if (store_->add(key("done"), 1) == options_.nnodes) report({});
  } catch (const CommError&) {
    // The watching thread says that the store is gone.
  }
}

void NodeGroup::report(const JobEnd& end) {
  try {
    // What a rank says that lost its peers is not the cause.
    auto gone = end.kind == JobEnd::Kind::kFailed ? find_gone_node(*store_) : std::nullopt;
    const JobEnd cause = gone ? *gone : blame(end);
    store_->replace(key("end"), std::nullopt, cause.to_text());
  } catch (const CommError&) {
    return;
  }
  std::lock_guard lock(mutex_);
  look_now_ = true;
  stopping_.notify_all();
}

void NodeGroup::close_attempt() {
  if (!watcher_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  watcher_.join();
}

void NodeGroup::keep_place() { kept_ = claim_place(attempt_ + 1); }

void NodeGroup::leave() {
  auto deadline = steady_clock::now() + kLeaveTimeout;
  try {
    store_->set(key(cat("left/", node_rank_)), "1");
    for (int node = 0; job_store_.server() && node < options_.nnodes; ++node) {
      if (node == node_rank_ || !store_->find(key(cat("node/", node)))) continue;
      while (!has_ended(node) && steady_clock::now() < deadline)
        std::this_thread::sleep_for(kLookAgain);
    }
  } catch (const CommError&) {
  }
}

}  // namespace tessera
