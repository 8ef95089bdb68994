#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "launch/membership_state.h"
#include "launch/membership_store.h"

namespace tessera {

// A set of nodes that train together until one of them is lost or others come.
struct Round {
  int number = 0;
  int node_rank = 0;
  int restarts = 0;  // of the job so far, that count
  std::string job_id;
  std::vector<MemberNode> nodes;  // by node rank
  Endpoint store;                 // that node 0 serves for this round
};

// The job that a node wants to take part in has ended.
struct JobHasEndedError : CommError {
  JobHasEndedError(JobEnd how, const std::string& text) : CommError(text), end(std::move(how)) {}
  JobEnd end;
};

// How nodes of a job whose number changes find together, again and again. They change one text
// (MembershipState) by compare-and-swap; whoever sees what is to be done next does it:
//
// - forming: nodes put themselves down until there are as many as may be, or all who are known to
//   be there, or nobody has come for `last_call`; then the first of them begins the round;
// - running: who comes now waits, if it reaches the round's store. When a node of the round is
//   lost, or the round is ended because somebody waits, the first survivor begins to form the next
//   one. A round of which no node is there any more is stale: who comes takes the job up;
// - closed: the job has ended.
//
// Nodes that are gone are dropped wherever they stand; no wait depends on one of them.
class Membership {
 public:
  using Seconds = std::chrono::duration<double>;
  struct Settings {
    std::string place;  // for messages
    int min_nodes = 1, max_nodes = 1, max_restarts = 0;
    std::optional<int> node_rank;
    Seconds join_timeout{600};       // until min_nodes are there
    Seconds last_call{30};           // for more of them, at the first round
    Seconds keep_alive_interval{5};  // between signs of life
    Seconds longest_silence{15};     // then a node is gone
    // Throws where this node does not reach the store of a round. Empty: not looked at.
    std::function<void(const Endpoint&)> require_reach = {};
  };
  struct LastRound {
    bool counts = false;      // against max_restarts
    std::set<int> lost = {};  // nodes that are known to be gone
  };

  Membership(std::unique_ptr<MembershipStore> store, Settings settings);
  // Leaves.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Waits for the next round that this node has a place in. `last` says how its last one ended.
  // `serve` makes this node serve a store; it may be called more often than there are rounds, and
  // then says the same. No value when `should_stop` says so.
  //
  // CommError: after join_timeout there are fewer than min_nodes, which is not waited for by a node
  // that has no place, as there are enough; other nodes have other settings; a node with the same
  // node_rank is there. JobHasEndedError.
  std::optional<Round> join(const LastRound& last, const std::function<Endpoint()>& serve,
                            const std::function<bool()>& should_stop);

  // While the nodes of a round meet, now and then: CommError when one of them is gone, or the
  // others have gone on without this one.
  void require_all_of(const Round& round);

  // From a thread, until the next join() or watch(nullptr), behind which no call is under way:
  // `on_waiting` is called when another node has come that there is a place for, without a node
  // when all such nodes are gone again, and once, as the last call, when nodes that this one cannot
  // reach have gone on without it. For one node of the round.
  using OnWaiting = std::function<void(const MemberNode* node, bool without_it)>;
  void watch(OnWaiting on_waiting);

  // The job has ended: nobody begins another round. Not an error when the store is out of reach.
  void close(const JobEnd& end);

  // Until no other node of the job is there. For one that serves them the store.
  void wait_for_others(std::chrono::milliseconds longest);

  // This node takes part no longer; where it was the last one, the job has ended so.
  void leave(const JobEnd& if_last);

 private:
  struct View {
    MembershipStore::Text text;
    std::optional<MembershipState> state;
    std::set<std::string> present;
  };

  View look();
  bool write(const View& view, const MembershipState& state);
  std::optional<Round> step(const View& view, const LastRound& last,
                            const std::function<Endpoint()>& serve);
  void begin_job(const View& view);
  MembershipState last_state() const;
  void form_next(const View& view, const LastRound& last, bool stale);
  void wait_for_place(const View& view);
  void require_reach(const MembershipState& state);
  void take_place(const View& view);
  bool is_complete(const View& view, const MembershipState& state);
  std::vector<MemberNode> by_rank(const std::vector<MemberNode>& nodes) const;
  Round round_of(const MembershipState& state) const;
  void require_same_settings(const MembershipState& state) const;
  bool is_stale(const View& view);
  bool may_take_rank(const View& view);
  std::string describe_missing(const View& view) const;
  void keep_alive_loop();
  void look_for_waiting();

  std::unique_ptr<MembershipStore> store_;
  Settings settings_;
  MemberNode self_;
  bool waits_ = false;     // has no place
  std::string unreached_;  // node 0 of the round that runs, if this node does not reach it
  // As this node has seen it, by its own clock.
  std::vector<std::string> seen_members_;
  std::chrono::steady_clock::time_point members_since_, required_at_;
  std::optional<std::chrono::steady_clock::time_point> rank_taken_since_, stale_since_;
  std::mutex looking_;
  std::set<std::string> present_;  // of those that were asked for since
  std::chrono::steady_clock::time_point present_at_;

  std::thread thread_;  // signs of life, and watch()
  std::mutex calling_;  // before mutex_
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::optional<Round> last_;  // that this node was in
  OnWaiting on_waiting_;
  bool told_waiting_ = false;  // the last call had a node
};

}  // namespace tessera
