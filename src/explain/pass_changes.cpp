#include "explain/pass_changes.h"

namespace tessera {

PassChanges pass_changes(const PassEvent& event) {
  PassChanges changes{.program = event.program, .pass = event.pass.name, .seconds = event.seconds};
  changes.nodes_before = std::ssize(event.before.nodes());
  changes.nodes_after = std::ssize(event.after.nodes());
  changes.kinds = changed_nodes(event.before, event.after, diff(event.before, event.after));
  for (const ChangedNodes& kind : changes.kinds) {
    int64_t& count = kind.change == NodeChange::kAdded     ? changes.added
                     : kind.change == NodeChange::kRemoved ? changes.removed
                                                           : changes.changed;
    count += kind.nodes;
  }
  return changes;
}

std::string pass_changes_text(const std::vector<PassChanges>& passes, size_t most) {
  std::string text;
  for (const PassChanges& pass : passes) {
    text += format("%-32s %8.1f ms  %lld -> %lld nodes", cat(pass.program, ".", pass.pass).c_str(),
                   pass.seconds * 1e3, static_cast<long long>(pass.nodes_before),
                   static_cast<long long>(pass.nodes_after));
    text += pass.kinds.empty()
                ? ": changed nothing\n"
                : cat(": +", pass.added, " -", pass.removed, " ~", pass.changed, "\n");
    for (NodeChange change : {NodeChange::kAdded, NodeChange::kRemoved, NodeChange::kChanged}) {
      std::vector<std::string> kinds;
      size_t others = 0;
      for (const ChangedNodes& kind : pass.kinds) {
        if (kind.change != change) continue;
        if (kinds.size() == most) {
          ++others;
          continue;
        }
        kinds.push_back(
            cat(kind.nodes, " ", kind.op, " ", name(kind.phase), " (", kind.places, ")"));
      }
      if (others > 0) kinds.push_back(cat("nodes of ", others, " more kinds"));
      if (!kinds.empty())
        text += format("  %-8s %s\n", std::string(name(change)).c_str(), join(kinds, "; ").c_str());
    }
  }
  return text;
}

}  // namespace tessera
