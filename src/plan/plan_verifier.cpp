#include <algorithm>
#include <map>
#include <set>

#include "ir/printer.h"
#include "ir/views.h"
#include "plan/plan.h"

namespace tessera {
namespace {

// Runs a plan on content tags instead of numbers. A piece says that bytes [begin, begin + size)
// hold what value `tag` had from byte `from` on.
struct Piece {
  int64_t begin = 0, size = 0;
  int32_t tag = 0;
  int64_t from = 0;
};
constexpr int32_t kZeros = -1, kScratch = -2, kUnwritten = -3, kFirstInFlight = -4;
// Of the results and the scratch of a node that has begun and is not waited for.
int32_t in_flight_tag(int32_t node) { return kFirstInFlight - node; }

std::string describe_tag(int32_t tag) {
  if (tag == kUnwritten) return "nothing";
  if (tag == kScratch) return "scratch";
  if (tag == kZeros) return "zeros";
  return tag <= kFirstInFlight ? "what is in flight" : cat("%", tag);
}

// The bytes of one external storage, or of one arena.
class Memory {
 public:
  void write(int64_t begin, int64_t size, int32_t tag, int64_t from) {
    if (size == 0) return;
    split(begin);
    split(begin + size);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(begin + size));
    pieces_[begin] = {begin, size, tag, from};
  }
  // Pieces of [begin, begin + size), positions relative to begin; gaps are kUnwritten.
  std::vector<Piece> read(int64_t begin, int64_t size) const {
    std::vector<Piece> result;
    int64_t at = begin, end = begin + size;
    auto it = pieces_.upper_bound(begin);
    if (it != pieces_.begin()) --it;
    for (; it != pieces_.end() && it->first < end; ++it) {
      const Piece& p = it->second;
      if (p.begin + p.size <= begin) continue;
      int64_t from = std::max(p.begin, begin), to = std::min(p.begin + p.size, end);
      if (from > at) result.push_back({at - begin, from - at, kUnwritten, 0});
      result.push_back({from - begin, to - from, p.tag, p.from + (from - p.begin)});
      at = to;
    }
    if (at < end) result.push_back({at - begin, end - at, kUnwritten, 0});
    return result;
  }

 private:
  void split(int64_t at) {
    auto it = pieces_.lower_bound(at);
    if (it == pieces_.begin()) return;
    Piece& p = (--it)->second;
    if (p.begin + p.size <= at) return;
    Piece right{at, p.begin + p.size - at, p.tag, p.from + (at - p.begin)};
    p.size = at - p.begin;
    pieces_[at] = right;
  }
  std::map<int64_t, Piece> pieces_;
};

class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), external_(plan.storages.size()) {}

  void run() {
    check_bounds();
    check_slots_and_tiers();
    set_expectations();
    for (const GraphInput& input : graph_.inputs())
      write(place(input.value), bytes(input.value), input.value.id, 0);
    for (const Instruction& i : plan_.instructions) {
      if (i.kind == InstructionKind::kLaunch)
        launch(i);
      else if (i.kind == InstructionKind::kWait)
        wait(i.node);
      else if (i.kind == InstructionKind::kFill)
        write(i.target, i.bytes, kZeros, 0);
      else
        copy(i);
    }
    if (!in_flight_.empty())
      fail(cat("nobody waits for ",
               to_string(graph_, graph_.nodes()[static_cast<size_t>(*in_flight_.begin())])));
    for (size_t k = 0; k < graph_.outputs().size(); ++k) {
      const GraphOutput& output = graph_.outputs()[k];
      expect(output.value, plan_.outputs[k], [&] { return cat("output ", output.name); });
    }
    for (const GraphInput& input : graph_.inputs()) {
      if (input.kind != InputKind::kArgument && !graph_.updates_slot(input.name))
        expect(input.value, place(input.value),
               [&] { return cat("input ", input.name, " at the end"); });
    }
    for (const StateUpdate& update : graph_.updates()) {
      expect(update.value, slot_place(update.slot), [&] { return cat("update of ", update.slot); });
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InternalError(cat("plan verifier: ", what));
  }
  Place place(Value v) const { return plan_.places[static_cast<size_t>(v.id)]; }
  int64_t bytes(Value v) const { return graph_.type(v).bytes(); }
  const Storage& storage(Place p) const { return plan_.storages[static_cast<size_t>(p.storage)]; }

  Place slot_place(const std::string& slot) const {
    auto found = slots_.find(slot);
    if (found == slots_.end()) fail(cat("no storage for slot ", slot));
    return {found->second, 0};
  }
  Memory& memory(Place p) {
    if (storage(p).external) return external_[static_cast<size_t>(p.storage)];
    return storage(p).tier == MemoryTier::kFar ? far_arena_ : arena_;
  }
  int64_t address(Place p) const {
    return p.offset + (storage(p).external ? 0 : storage(p).arena_offset);
  }
  void write(Place p, int64_t size, int32_t tag, int64_t from) {
    memory(p).write(address(p), size, tag, from);
  }

  void check_place(Place p, int64_t size, const std::string& what) const {
    if (p.storage < 0 || p.storage >= static_cast<int32_t>(plan_.storages.size()))
      fail(cat(what, " has no storage"));
    bool inside = p.offset >= 0 && size >= 0 && p.offset + size <= storage(p).bytes;
    if (!inside) fail(cat(what, " lies outside its storage"));
  }

  void check_bounds() {
    if (plan_.places.size() != static_cast<size_t>(graph_.num_values()))
      fail("a value has no place");
    if (plan_.outputs.size() != graph_.outputs().size()) fail("an output has no place");
    for (int32_t v = 0; v < graph_.num_values(); ++v)
      check_place(place({v}), bytes({v}), cat("%", v));
    for (size_t k = 0; k < plan_.outputs.size(); ++k)
      check_place(plan_.outputs[k], bytes(graph_.outputs()[k].value), "an output");
    for (const GraphInput& input : graph_.inputs()) {
      const Storage& s = storage(place(input.value));
      if (input.kind == InputKind::kArgument) {
        if (s.external) fail(cat("argument ", input.name, " is in a state slot"));
      } else if (!s.external || s.external_name != input.name || place(input.value).offset != 0) {
        fail(cat("input ", input.name, " is not in its slot"));
      }
    }
    for (size_t k = 0; k < plan_.storages.size(); ++k) {
      const Storage& s = plan_.storages[k];
      if (s.external && !slots_.emplace(s.external_name, static_cast<int32_t>(k)).second)
        fail(cat("two storages for ", s.external_name));
      int64_t arena = s.tier == MemoryTier::kFar ? plan_.far_arena_bytes : plan_.arena_bytes;
      if (!s.external && (s.arena_offset < 0 || s.arena_offset % kBufferAlignment != 0 ||
                          s.arena_offset + s.bytes > arena))
        fail("a storage lies outside the arena");
    }
    for (const Instruction& i : plan_.instructions) {
      if (i.kind == InstructionKind::kLaunch || i.kind == InstructionKind::kWait) {
        if (i.node < 0 || i.node >= static_cast<int32_t>(graph_.nodes().size()))
          fail("a launch of no node");
        continue;
      }
      check_place(i.target, i.bytes, "a copy or fill");
      if (i.kind == InstructionKind::kCopy) check_place(i.source, i.bytes, "a copied range");
    }
    if (!plan_.workspaces.empty() && plan_.workspaces.size() != graph_.nodes().size())
      fail("one workspace a node");
    for (int32_t s : plan_.workspaces) {
      if (s >= static_cast<int32_t>(plan_.storages.size())) fail("a workspace has no storage");
    }
  }

  const Node& maker(Value v) const {
    return graph_.nodes()[static_cast<size_t>(graph_.producer(v))];
  }

  // Slots that the program neither reads nor updates are not touched. What a node makes is in the
  // tier that its op names, as the new content of a slot is; views are where their operand is, and
  // kernels have their scratch near.
  void check_slots_and_tiers() const {
    for (const StateUpdate& update : graph_.updates()) {
      Value made = update.value;
      while (is_view(maker(made))) made = maker(made).inputs[0];
      if (storage(slot_place(update.slot)).tier != maker(made).op->memory_tier())
        fail(cat("slot ", update.slot, " is in the wrong tier"));
    }
    for (const auto& [slot, number] : slots_) {
      if (!graph_.find_input(slot) && !graph_.updates_slot(slot))
        fail(cat("slot ", slot, " is none of the program's"));
    }
    for (const Node& node : graph_.nodes()) {
      if (is_view(node)) continue;
      for (Value v : node.outputs) {
        const Storage& s = storage(place(v));
        const bool old_content = s.external && node.op->tier() == Tier::kInput;
        if (!old_content && s.tier != node.op->memory_tier())
          fail(cat("%", v.id, " is in the wrong tier: ", to_string(graph_, node)));
      }
    }
    for (int32_t s : plan_.workspaces) {
      if (s >= 0 && plan_.storages[static_cast<size_t>(s)].tier != MemoryTier::kNear)
        fail("a workspace is in the far tier");
    }
  }

  // What the bytes of every value must be: its own tag, or for views and flattens those of others.
  void set_expectations() {
    expected_.resize(static_cast<size_t>(graph_.num_values()));
    for (const Node& node : graph_.nodes()) {
      auto views = node.op->view_offsets(), placed = node.op->placement_offsets();
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        Value out = node.outputs[k];
        auto& pieces = expected_[static_cast<size_t>(out.id)];
        if (!node.inputs.empty() && !views.empty()) {
          Memory scratch;
          for (const Piece& p : expected_[static_cast<size_t>(node.inputs[0].id)])
            scratch.write(p.begin, p.size, p.tag, p.from);
          pieces = scratch.read(views[k] * size_of(graph_.type(out).dtype), bytes(out));
        } else if (!placed.empty()) {
          Memory scratch;
          scratch.write(0, bytes(out), kZeros, 0);
          for (size_t i = 0; i < node.inputs.size(); ++i) {
            int64_t base = placed[i] * size_of(graph_.type(out).dtype);
            for (const Piece& p : expected_[static_cast<size_t>(node.inputs[i].id)])
              scratch.write(base + p.begin, p.size, p.tag, p.from);
          }
          pieces = scratch.read(0, bytes(out));
        } else if (bytes(out) > 0) {
          pieces = {{0, bytes(out), out.id, 0}};
        }
      }
    }
  }

  // Compares contents ignoring how they are cut into pieces; zeros have no position.
  template <class Use>
  void expect(Value v, Place at, const Use& use) {
    Memory want;
    for (const Piece& p : expected_[static_cast<size_t>(v.id)])
      want.write(p.begin, p.size, p.tag, p.from);
    for (const Piece& p : memory(at).read(address(at), bytes(v))) {
      for (const Piece& w : want.read(p.begin, p.size)) {
        bool same = w.tag == p.tag && w.tag != kUnwritten &&
                    (w.tag == kZeros || w.from == p.from + w.begin);
        if (!same)
          fail(cat(use(), ": bytes of %", v.id, " hold ", describe_tag(p.tag), " at ",
                   p.begin + w.begin));
      }
    }
  }

  static bool overlap(const Storage& sa, int64_t a, int64_t a_size, const Storage& sb, int64_t b,
                      int64_t b_size, bool same_storage) {
    if (sa.external != sb.external || (sa.external && !same_storage)) return false;
    if (!sa.external && sa.tier != sb.tier) return false;
    return a < b + b_size && b < a + a_size;
  }
  bool overlap(Place a, int64_t a_size, Place b, int64_t b_size) const {
    return overlap(storage(a), address(a), a_size, storage(b), address(b), b_size,
                   a.storage == b.storage);
  }

  void launch(const Instruction& instruction) {
    const int32_t index = instruction.node;
    const Node& node = graph_.nodes()[static_cast<size_t>(index)];
    auto use = [&] { return to_string(graph_, node); };  // only for messages
    for (Value v : node.inputs) expect(v, place(v), use);
    int32_t scratch = plan_.workspaces.empty() ? -1 : plan_.workspaces[static_cast<size_t>(index)];
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      Value out = node.outputs[o];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        Value in = node.inputs[i];
        if (!overlap(place(out), bytes(out), place(in), bytes(in))) continue;
        auto pairs = node.op->in_place_pairs();
        bool declared = std::any_of(pairs.begin(), pairs.end(), [&](InPlacePair p) {
          return p.input == static_cast<int>(i) && p.output == static_cast<int>(o);
        });
        if (!declared || address(place(in)) != address(place(out)) || bytes(in) != bytes(out))
          fail(cat("undeclared in-place: ", use()));
      }
      for (size_t other = 0; other < o; ++other) {
        if (overlap(place(out), bytes(out), place(node.outputs[other]), bytes(node.outputs[other])))
          fail(cat("outputs overlap: ", use()));
      }
      if (scratch >= 0 && overlap(place(out), bytes(out), {scratch, 0},
                                  plan_.storages[static_cast<size_t>(scratch)].bytes))
        fail(cat("scratch overlaps an output: ", use()));
    }
    const Lane lane = instruction.lane, own = node.op->lane();
    if (lane != own && !(lane == Lane::kCompute && own == Lane::kCopy))
      fail(cat("on lane ", name(lane), ": ", use()));
    bool runs_on = lane != Lane::kCompute;
    if (runs_on && !in_flight_.insert(index).second) fail(cat("begun twice: ", use()));
    if (scratch >= 0) {
      Place p{scratch, 0};
      for (Value in : node.inputs) {
        if (overlap(place(in), bytes(in), p, storage(p).bytes))
          fail(cat("scratch overlaps an operand: ", use()));
      }
      write(p, storage(p).bytes, runs_on ? in_flight_tag(index) : kScratch, 0);
    }
    for (Value out : node.outputs)
      write(place(out), bytes(out), runs_on ? in_flight_tag(index) : out.id, 0);
  }

  // Until here the op read its operands and wrote its results: both must have been left alone.
  void wait(int32_t index) {
    const Node& node = graph_.nodes()[static_cast<size_t>(index)];
    auto use = [&] { return cat("end of ", to_string(graph_, node)); };
    if (in_flight_.erase(index) == 0) fail(cat("not begun: ", use()));
    auto untouched = [&](Place p, int64_t size) {
      for (const Piece& piece : memory(p).read(address(p), size)) {
        if (piece.tag != in_flight_tag(index)) fail(cat("bytes used meanwhile: ", use()));
      }
    };
    for (Value out : node.outputs) untouched(place(out), bytes(out));
    int32_t scratch = plan_.workspaces.empty() ? -1 : plan_.workspaces[static_cast<size_t>(index)];
    if (scratch >= 0) untouched({scratch, 0}, storage({scratch, 0}).bytes);
    for (Value in : node.inputs) {
      bool handed_over = std::any_of(node.outputs.begin(), node.outputs.end(), [&](Value out) {
        return overlap(place(out), bytes(out), place(in), bytes(in));
      });
      if (!handed_over) expect(in, place(in), use);
    }
    for (Value out : node.outputs) write(place(out), bytes(out), out.id, 0);
  }

  void copy(const Instruction& i) {
    auto pieces = memory(i.source).read(address(i.source), i.bytes);
    for (const Piece& p : pieces)
      memory(i.target).write(address(i.target) + p.begin, p.size, p.tag, p.from);
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<Memory> external_;
  Memory arena_, far_arena_;
  std::map<std::string, int32_t> slots_;  // external storages
  std::vector<std::vector<Piece>> expected_;
  std::set<int32_t> in_flight_;  // nodes begun and not waited for
};

}  // namespace

void verify_plan(const Graph& graph, const Plan& plan) { PlanVerifier(graph, plan).run(); }

}  // namespace tessera
