#include "plan/layout.h"

#include <utility>

namespace tessera {
namespace {

// Nodes over which a value lives that lives briefly: some layers.
constexpr int32_t kBrief = 256;

}  // namespace

Layout::Layout(const Graph& graph, const PlanOptions& options)
    : before(graph.nodes().size()),
      after(graph.nodes().size()),
      no_launch(graph.nodes().size(), false),
      graph_(graph),
      options_(options),
      nodes_(static_cast<int32_t>(graph.nodes().size())) {
  for (int32_t v = 0; v < graph.num_values(); ++v)
    add_id(graph.type({v}).bytes(), graph.producer({v}), false, "");
  for (int32_t i = 0; i < nodes_; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    bool view = !node.op->view_offsets().empty() && !node.inputs.empty();
    for (Value v : node.outputs)
      tiers_[static_cast<size_t>(v.id)] = view ? tier(node.inputs[0].id) : node.op->memory_tier();
  }
  for (const GraphInput& input : graph.inputs()) {
    auto v = static_cast<size_t>(input.value.id);
    external_[v] = input.kind != InputKind::kArgument;
    if (external_[v]) names_[v] = input.name;
    defined_[v] = -1;
    no_launch[static_cast<size_t>(graph.producer(input.value))] = true;
  }
  const std::vector<MemoryTier> made = tiers_;
  for (const StateUpdate& update : graph.updates()) {
    Value old = graph.find_input(update.slot);
    slots_.push_back(old ? old.id
                         : add_id(graph.type(update.value).bytes(), -1, true, update.slot));
    tiers_[static_cast<size_t>(slots_.back())] = made[static_cast<size_t>(update.value.id)];
  }
  for (int32_t i = 0; i < nodes_; ++i) {
    for (Value v : graph.nodes()[static_cast<size_t>(i)].inputs)
      last_use_[static_cast<size_t>(v.id)] = i;
  }
  set_finishes(options.views);
  merge_views(options.views);
  keep_results();
  collect_members();
  merge_updates(options.in_place);
  merge_placements(options.placement);
  // Exchanges first: what they hold, they hold for long.
  for (bool exchanges : {true, false})
    if (options.in_place) merge_in_place(exchanges);
  if (options.lodging) lodge_in_slots();
}

void Layout::set_finishes(bool views) {
  constexpr int32_t kUnread = -1;
  // First node that reads a value or a view of it.
  std::vector<int32_t> first_read(bytes_.size(), kUnread);
  for (const GraphOutput& o : graph_.outputs())
    first_read[static_cast<size_t>(o.value.id)] = nodes_;
  for (const StateUpdate& u : graph_.updates())
    first_read[static_cast<size_t>(u.value.id)] = nodes_;
  finish_.resize(static_cast<size_t>(nodes_));
  std::map<std::string, int32_t> next;  // node that begins the next exchange of a kind
  for (int32_t i = nodes_ - 1; i >= 0; --i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    int32_t& finish = finish_[static_cast<size_t>(i)] = i;
    int32_t read = kUnread;
    for (Value v : node.outputs) {
      int32_t at = first_read[static_cast<size_t>(v.id)];
      if (at != kUnread) read = read == kUnread ? at : std::min(read, at);
    }
    if (lane(i) != Lane::kCompute && read != kUnread) {
      // What nobody reads before the end, and a reduction in any case, is done when the next of its
      // kind begins: otherwise the whole gradients of all layers, or of a tied parameter, would
      // stay until they are read. In place of its operand an exchange holds nothing else.
      auto [kind, last] = next.try_emplace(node.op->key(), nodes_);
      int32_t following = std::exchange(kind->second, i);
      bool shrinks = graph_.type(node.inputs[0]).bytes() > graph_.type(node.outputs[0]).bytes() ||
                     node.op->memory_tier() == MemoryTier::kFar;
      bool holds = (read == nodes_ || shrinks) && node.op->in_place_pairs().empty();
      finish = holds ? std::min(read, following) : read;
      for (Value v : node.inputs) {
        int32_t& end = last_use_[static_cast<size_t>(v.id)];
        end = std::max(end, finish);
      }
    }
    // Without views their content is copied, which is to read it.
    bool view = views && !node.op->view_offsets().empty();
    for (Value v : node.inputs) {
      int32_t &first = first_read[static_cast<size_t>(v.id)],
              &heir = heir_[static_cast<size_t>(v.id)];
      if (heir == kNobody)
        heir = i;
      else if (finish > heir)
        heir = nodes_;
      if (!view)
        first = i;
      else if (read != kUnread)
        first = first == kUnread ? read : std::min(first, read);
    }
  }
}

int32_t Layout::add_id(int64_t bytes, int32_t defined, bool external, const std::string& name) {
  int32_t id = num_ids();
  bytes_.push_back(bytes);
  external_.push_back(external);
  names_.push_back(name);
  tiers_.push_back(MemoryTier::kNear);
  defined_.push_back(defined);
  last_use_.push_back(-1);
  heir_.push_back(kNobody);
  parent_.push_back(id);
  parent_offset_.push_back(0);
  same_as_.push_back(id);
  return id;
}

Layout::Location Layout::locate(int32_t id) const {
  int64_t offset = 0;
  int32_t root = id;
  while (parent_[static_cast<size_t>(root)] != root) {
    offset += parent_offset_[static_cast<size_t>(root)];
    root = parent_[static_cast<size_t>(root)];
    ++steps_;
  }
  for (int64_t left = offset; id != root;) {
    int32_t next = std::exchange(parent_[static_cast<size_t>(id)], root);
    left -= std::exchange(parent_offset_[static_cast<size_t>(id)], left);
    id = next;
  }
  return {root, offset};
}

Place Layout::place(int32_t id, int64_t extra) const {
  Location l = locate(id);
  return {l.root, l.offset + extra};
}

void Layout::merge(int32_t root, int32_t into, int64_t offset) {
  TESSERA_CHECK(root != into && parent_[static_cast<size_t>(root)] == root &&
                parent_[static_cast<size_t>(into)] == into);
  parent_[static_cast<size_t>(root)] = into;
  parent_offset_[static_cast<size_t>(root)] = offset;
  if (members_.empty()) return;  // not collected yet
  Members& from = members_[static_cast<size_t>(root)];
  Members& to = members_[static_cast<size_t>(into)];
  if (from.size() > to.size()) std::swap(from, to);
  steps_ += static_cast<int64_t>(from.size());
  to.lasting.insert(to.lasting.end(), from.lasting.begin(), from.lasting.end());
  to.brief.merge(from.brief);
  from = {};
}

void Layout::collect_members() {
  members_.resize(bytes_.size());
  for (int32_t id = 0; id < num_ids(); ++id) {
    Members& of_root = members_[static_cast<size_t>(locate(id).root)];
    if (end(id) - defined(id) > kBrief)
      of_root.lasting.push_back(id);
    else
      of_root.brief.emplace(defined(id), id);
  }
}

template <class Test>
bool Layout::any_beside(int32_t x, const Members& members, const Test& test) const {
  if (std::ranges::any_of(members.lasting, test)) return true;
  auto first = members.brief.lower_bound(defined(x) - kBrief);
  auto last = members.brief.upper_bound(end(x));
  return std::any_of(first, last, [&](const auto& member) { return test(member.second); });
}

// Whether a value's bytes become those of another where that is made: its life ends there, but for
// what an exchange in place of it still does.
bool Layout::hands_over(int32_t dying, int32_t made, int64_t dying_offset,
                        int64_t made_offset) const {
  if (defined(dying) >= defined(made) || heir_[static_cast<size_t>(dying)] != defined(made) ||
      dying_offset != made_offset || bytes(dying) != bytes(made))
    return false;
  const Node& node = graph_.nodes()[static_cast<size_t>(defined(made))];
  auto same = [this](int32_t a, int32_t b) {
    return same_as_[static_cast<size_t>(a)] == same_as_[static_cast<size_t>(b)];
  };
  int uses = 0;
  for (Value v : node.inputs) uses += same(v.id, dying);
  for (InPlacePair pair : node.op->in_place_pairs()) {
    if (same(node.inputs[static_cast<size_t>(pair.input)].id, dying) &&
        same(node.outputs[static_cast<size_t>(pair.output)].id, made))
      return uses == 1;
  }
  return false;
}

bool Layout::clash(int32_t a, int64_t a_offset, int32_t b, int64_t b_offset) const {
  ++steps_;
  if (a_offset >= b_offset + bytes(b) || b_offset >= a_offset + bytes(a)) return false;
  // A value dies while the node that reads it last runs, and the next may only begin after that
  // node: equality is a hand-over, allowed where the op declares it.
  if (end(a) < defined(b) || end(b) < defined(a)) return false;
  return !hands_over(a, b, a_offset, b_offset) && !hands_over(b, a, b_offset, a_offset);
}

bool Layout::compatible(int32_t root, int32_t into, int64_t offset, Against against) const {
  const Members *fewer = &members_[static_cast<size_t>(root)],
                *more = &members_[static_cast<size_t>(into)];
  int64_t fewer_offset = offset, more_offset = 0;
  bool swapped = fewer->size() > more->size();
  if (swapped) {
    std::swap(fewer, more);
    std::swap(fewer_offset, more_offset);
  }
  auto is_old = [&](int32_t id) { return defined(id) < 0; };
  auto clashes = [&](int32_t x) {
    return any_beside(x, *more, [&](int32_t u) {
      if (against == Against::kOldContent && !is_old(swapped ? x : u)) return false;
      return clash(x, locate(x).offset + fewer_offset, u, locate(u).offset + more_offset);
    });
  };
  return std::ranges::none_of(fewer->lasting, clashes) &&
         std::ranges::none_of(fewer->brief, [&](const auto& m) { return clashes(m.second); });
}

void Layout::add_copy(std::vector<Instruction>& list, int32_t node, int32_t source, Place target,
                      const std::string& reason) {
  list.push_back({InstructionKind::kCopy, node, place(source), target, bytes(source)});
  ++statistics.copies;
  statistics.copy_bytes += bytes(source);
  const std::string& scope =
      node < nodes_ ? graph_.nodes()[static_cast<size_t>(node)].scope : graph_.scope();
  statistics.copy_reasons.push_back(scope.empty() ? reason : cat(reason, " (", scope, ")"));
}

// Forward views: outputs lie inside the operand, whose life they share.
void Layout::merge_views(bool enabled) {
  for (int32_t i = 0; i < nodes_; ++i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    std::vector<int64_t> offsets = node.op->view_offsets();
    if (offsets.empty() || node.inputs.empty()) continue;
    no_launch[static_cast<size_t>(i)] = true;
    for (size_t k = 0; k < offsets.size(); ++k) {
      int64_t offset = offsets[k] * size_of(graph_.type(node.inputs[0]).dtype);
      Value out = node.outputs[k];
      if (enabled) {
        Location base = locate(node.inputs[0]);
        // A view exists from the moment its operand does: the bytes are written only once.
        defined_[static_cast<size_t>(out.id)] = defined(node.inputs[0].id);
        merge(out.id, base.root, base.offset + offset);
        if (offset == 0 && bytes(out.id) == bytes(node.inputs[0].id))
          same_as_[static_cast<size_t>(out.id)] = same_as_[static_cast<size_t>(node.inputs[0].id)];
        ++statistics.views;
      } else {
        Place source = place(node.inputs[0].id, offset);
        before[static_cast<size_t>(i)].push_back(
            {InstructionKind::kCopy, i, source, place(out.id), bytes(out.id)});
        ++statistics.copies;
        statistics.copy_bytes += bytes(out.id);
        statistics.copy_reasons.push_back(cat("views are off (", node.scope, ")"));
      }
    }
  }
}

// Outputs and new state outlive the program.
void Layout::keep_results() {
  for (const GraphOutput& output : graph_.outputs()) outputs_.push_back(keep(output.value, ""));
  for (const StateUpdate& update : graph_.updates())
    updates_.push_back(keep(update.value, update.slot));
}

// A result that views a slot would change when the slot is updated: it is copied first. Returns the
// id that holds the result.
int32_t Layout::keep(Value result, const std::string& own_slot) {
  Location l = locate(result);
  const std::string slot = external_name(l.root);
  bool changes = external(l.root) && slot != own_slot && graph_.updates_slot(slot);
  int32_t& end = last_use_[static_cast<size_t>(result.id)];
  if (!changes) {
    end = heir_[static_cast<size_t>(result.id)] = nodes_;
    return result.id;
  }
  int32_t node = graph_.producer(result);
  end = std::max(end, node);
  int32_t copy = add_id(bytes(result.id), node, false, "");
  last_use_[static_cast<size_t>(copy)] = nodes_;
  add_copy(after[static_cast<size_t>(node)], node, result.id, {copy, 0},
           cat("result views state slot ", slot, ", which is updated"));
  return copy;
}

// State updates are computed in the slot's own bytes where the old content is no longer needed.
void Layout::merge_updates(bool enabled) {
  for (size_t k = 0; k < updates_.size(); ++k) {
    const std::string& name = graph_.updates()[k].slot;
    int32_t slot = slots_[k];
    Location l = locate(updates_[k]);
    if (l.root == slot && l.offset == 0) continue;  // unchanged
    bool whole = l.offset == 0 && bytes(l.root) == bytes(slot) && !external(l.root);
    if (enabled && whole && compatible(l.root, slot, 0)) {
      merge(l.root, slot, 0);
      ++statistics.in_place;
    } else {
      const char* reason = !enabled ? "in-place is off"
                           : !whole ? "it is part of another buffer"
                                    : "the slot is still read when it is made";
      add_copy(at_end, nodes_, updates_[k], {slot, 0},
               cat("update of state slot ", name, ": ", reason));
    }
  }
}

void Layout::place_operand(int32_t i, size_t k, bool enabled) {
  const Node& node = graph_.nodes()[static_cast<size_t>(i)];
  Value operand = node.inputs[k], out = node.outputs[0];
  int64_t offset = node.op->placement_offsets()[k] * size_of(graph_.type(out).dtype);
  Location from = locate(operand), to = locate(out);
  // What is in the target else is the flatten's own content; only a slot's old one could be in the
  // way.
  const char* reason = !enabled                           ? "placement is off"
                       : external(from.root)              ? "operand is external"
                       : from.root == to.root             ? "operand is placed already"
                       : tier(from.root) != tier(to.root) ? "operand is in the other tier"
                       : from.offset != 0 || bytes(from.root) != bytes(operand.id)
                           ? "operand is part of another buffer"
                       : !compatible(from.root, to.root, to.offset + offset, Against::kOldContent)
                           ? "target is in use while the operand is made"
                           : nullptr;
  if (reason) {
    add_copy(before[static_cast<size_t>(i)], i, operand.id, place(out.id, offset), reason);
  } else {
    merge(from.root, to.root, to.offset + offset);
  }
}

void Layout::fill_gaps(int32_t i) {
  const Node& node = graph_.nodes()[static_cast<size_t>(i)];
  Value out = node.outputs[0];
  std::vector<int64_t> offsets = node.op->placement_offsets();
  int64_t element = size_of(graph_.type(out).dtype);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (size_t k = 0; k < offsets.size(); ++k)
    ranges.push_back({offsets[k] * element, offsets[k] * element + bytes(node.inputs[k].id)});
  ranges.push_back({bytes(out.id), bytes(out.id)});
  std::sort(ranges.begin(), ranges.end());
  int64_t end = 0;
  for (auto [begin, stop] : ranges) {
    if (begin > end) {
      before[static_cast<size_t>(i)].push_back(
          {InstructionKind::kFill, i, {}, place(out.id, end), begin - end});
      ++statistics.fills;
      statistics.fill_bytes += begin - end;
    }
    end = stop;
  }
}

// Operands of a flatten are computed where they belong. Later flattens first: of a flatten inside
// another, only the operands that do not fit the outer one are copied, not all of it.
void Layout::merge_placements(bool enabled) {
  for (int32_t i = nodes_ - 1; i >= 0; --i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    if (node.op->placement_offsets().empty()) continue;
    no_launch[static_cast<size_t>(i)] = true;
    for (size_t k = 0; k < node.inputs.size(); ++k) place_operand(i, k, enabled);
    fill_gaps(i);
  }
}

// What is left: an output takes over the bytes of an operand that dies here. Again until nothing is
// found: a result may have come to lie where there is room for all of its operand's buffer.
void Layout::merge_in_place(bool exchanges) {
  while (merge_in_place_once(exchanges)) {
  }
}

bool Layout::merge_in_place_once(bool exchanges) {
  bool merged = false;
  for (int32_t i = 0; i < nodes_; ++i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    if (no_launch[static_cast<size_t>(i)] || (lane(i) != Lane::kCompute) != exchanges) continue;
    for (InPlacePair pair : node.op->in_place_pairs()) {
      Value in = node.inputs[static_cast<size_t>(pair.input)],
            out = node.outputs[static_cast<size_t>(pair.output)];
      Location from = locate(in), to = locate(out);
      if (from.root == to.root || external(from.root) || tier(from.root) != tier(to.root)) continue;
      if (bytes(in.id) != bytes(out.id) || graph_.type(in).dtype != graph_.type(out).dtype)
        continue;
      // With all that the operand is a part of.
      const int64_t offset = to.offset - from.offset;
      if (offset < 0 || offset + bytes(from.root) > bytes(to.root)) continue;
      if (bytes(from.root) != bytes(in.id) && offset % kBufferAlignment != 0) continue;
      if (!compatible(from.root, to.root, offset)) continue;
      merge(from.root, to.root, offset);
      ++statistics.in_place;
      merged = true;
    }
  }
  return merged;
}

}  // namespace tessera
