#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "ir/graph.h"
#include "plan/plan.h"

namespace tessera {

// Decides which values share storage. Every value starts in a storage of its own (its root);
// merging puts a root's values at an offset inside another root. Used by make_plan() only.
class Layout {
 public:
  Layout(const Graph& graph, const PlanOptions& options);

  struct Location {
    int32_t root = -1;
    int64_t offset = 0;
  };
  Location locate(int32_t id) const;
  Location locate(Value v) const { return locate(v.id); }

  // Ids beyond the graph's values stand for state slots that are updated but not read, and for
  // copies of results.
  int32_t num_ids() const { return static_cast<int32_t>(bytes_.size()); }
  int64_t bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }
  bool external(int32_t root) const { return external_[static_cast<size_t>(root)]; }
  const std::string& external_name(int32_t root) const { return names_[static_cast<size_t>(root)]; }
  // Of a slot that is updated: that of its new content.
  MemoryTier tier(int32_t root) const { return tiers_[static_cast<size_t>(root)]; }
  // Node at which the value appears; -1 for external ones and arguments, which are there from the
  // start.
  int32_t defined(int32_t id) const { return defined_[static_cast<size_t>(id)]; }
  // Last node that reads it; the number of nodes for what must outlive the program; -1: never read.
  int32_t last_use(int32_t id) const { return last_use_[static_cast<size_t>(id)]; }
  Lane lane(int32_t node) const {
    Lane own = graph_.nodes()[static_cast<size_t>(node)].op->lane();
    return own == Lane::kCopy && !options_.copies_beside ? Lane::kCompute : own;
  }
  // Where a node must be done: the node itself, or for one on another lane than compute the first
  // that reads what it makes (the number of nodes if the program ends before).
  int32_t finish(int32_t node) const { return finish_[static_cast<size_t>(node)]; }

  // Values compared and ways to roots walked so far.
  int64_t steps() const { return steps_; }

  // Id that holds each output of the graph: its value, or a copy.
  const std::vector<int32_t>& outputs() const { return outputs_; }

  // Instructions to run before node i (copies and fills of a flatten), right after it (copies of
  // results that view updated state), and after the last node.
  std::vector<std::vector<Instruction>> before, after;
  std::vector<Instruction> at_end;
  Plan statistics;              // only its counters and reasons are used
  std::vector<bool> no_launch;  // nodes that are storage only

  // Place of an id, with the root standing for the storage; make_plan renumbers.
  Place place(int32_t id, int64_t extra = 0) const;

 private:
  int32_t add_id(int64_t bytes, int32_t defined, bool external, const std::string& name);
  void set_finishes(bool views);
  void merge_views(bool enabled);
  void keep_results();
  void collect_members();
  int32_t keep(Value result, const std::string& own_slot);
  void merge_updates(bool enabled);
  void merge_placements(bool enabled);
  void merge_in_place(bool exchanges);
  bool merge_in_place_once(bool exchanges);
  void place_operand(int32_t node, size_t operand, bool enabled);
  void fill_gaps(int32_t node);
  void lodge_in_slots();

  void merge(int32_t root, int32_t into, int64_t offset);
  // Whether the members of `root`, moved to `offset` inside `into`, never clash with those there,
  // or with those that are there from the start.
  enum class Against { kAll, kOldContent };
  bool compatible(int32_t root, int32_t into, int64_t offset,
                  Against against = Against::kAll) const;
  // What lies in a root, found by when it lives: values that live briefly by the node at which they
  // appear, the few others in a list.
  struct Members {
    std::vector<int32_t> lasting;
    std::multimap<int32_t, int32_t> brief;
    size_t size() const { return lasting.size() + brief.size(); }
  };
  // Whether `test` holds of a member that lives while x does; others may be asked too.
  template <class Test>
  bool any_beside(int32_t x, const Members& members, const Test& test) const;
  int32_t end(int32_t id) const { return std::max(last_use(id), defined(id)); }
  bool clash(int32_t a, int64_t a_offset, int32_t b, int64_t b_offset) const;
  bool hands_over(int32_t dying, int32_t made, int64_t dying_offset, int64_t made_offset) const;
  void add_copy(std::vector<Instruction>& list, int32_t node, int32_t source, Place target,
                const std::string& reason);

  const Graph& graph_;
  PlanOptions options_;
  int32_t nodes_;
  std::vector<int64_t> bytes_;
  std::vector<bool> external_;
  std::vector<std::string> names_;
  std::vector<MemoryTier> tiers_;
  std::vector<int32_t> defined_, last_use_, finish_;
  // The one node that may make its result in a value's bytes: its last reader, if all others are
  // done by then. kNobody: never read; the number of nodes: it outlives that reader.
  static constexpr int32_t kNobody = -1;
  std::vector<int32_t> heir_;
  mutable std::vector<int32_t> parent_;  // locate() shortens the way to the root
  mutable std::vector<int64_t> parent_offset_;
  mutable int64_t steps_ = 0;
  std::vector<int32_t> same_as_;  // the value of which this is a view of the same bytes, or itself
  std::vector<Members> members_;  // by root, once lives are settled
  std::vector<int32_t> outputs_, updates_;  // ids that hold the graph's outputs and updates
  std::vector<int32_t> slots_;              // of the updates
};

}  // namespace tessera
