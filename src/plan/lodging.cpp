#include "plan/arena_space.h"
#include "plan/layout.h"

namespace tessera {
namespace {

// Slots looked into for a value, which bounds the time that deep models take.
constexpr std::ptrdiff_t kSlotsTried = 16;

// From the program's begin until a node, a slot has room for values at [begin, end) of a row of
// slots.
struct Room {
  int32_t slot = -1, until = 0;
  int64_t begin = 0, end = 0;
};

}  // namespace

// Nobody needs what a slot held that a program updates and does not read. Until its new content is
// made, values lie there that are gone by then: the largest first, each in the slot that is needed
// soonest after it.
void Layout::lodge_in_slots() {
  struct Life {
    int32_t first, last = -1;
  };
  // By root; of a slot, that of its new content, which an update by copy makes at the end.
  std::vector<Life> lives(bytes_.size(), Life{nodes_});
  for (int32_t id = 0; id < num_ids(); ++id) {
    if (external(id)) continue;
    Life& life = lives[static_cast<size_t>(locate(id).root)];
    life = {std::min(life.first, defined(id)), std::max(life.last, end(id))};
  }
  auto life = [&](int32_t root) { return lives[static_cast<size_t>(root)]; };

  std::vector<Room> rooms;
  for (size_t k = 0; k < slots_.size(); ++k) {
    const int32_t slot = slots_[k];
    const bool read = slot < graph_.num_values();
    // An optimizer's update works on far slots as if they were near (Programs::far_state): where
    // they are its graph does not say.
    const int32_t maker = graph_.producer(graph_.updates()[k].value);
    const bool tier_known = graph_.nodes()[static_cast<size_t>(maker)].phase != Phase::kOptimizer;
    if (!read && tier_known && tier(slot) == MemoryTier::kNear && bytes(slot) >= kBufferAlignment)
      rooms.push_back({slot, life(slot).first});
  }
  if (rooms.empty()) return;
  std::ranges::stable_sort(rooms, {}, &Room::until);
  ArenaSpace space(nodes_ + 1);
  int64_t behind = 0;
  for (Room& room : rooms) {
    room.begin = behind;
    room.end = behind + bytes(room.slot) / kBufferAlignment * kBufferAlignment;
    // A wall, so that nothing lies half in one slot and half in the next.
    space.take(0, nodes_, room.end, kBufferAlignment);
    behind = room.end + kBufferAlignment;
  }

  // What ranks exchange stays in the arena, where they can read it of each other.
  std::vector<bool> stays(bytes_.size(), false);
  for (const Node& node : graph_.nodes()) {
    if (!node.op->communication()) continue;
    for (const std::vector<Value>* values : {&node.inputs, &node.outputs})
      for (Value v : *values) stays[static_cast<size_t>(locate(v).root)] = true;
  }
  std::vector<int32_t> guests;
  for (int32_t id = 0; id < num_ids(); ++id) {
    if (locate(id).root == id && !external(id) && tier(id) == MemoryTier::kNear &&
        !stays[static_cast<size_t>(id)] && bytes(id) > 0 && life(id).first >= 0)
      guests.push_back(id);
  }
  std::ranges::stable_sort(guests, [&](int32_t a, int32_t b) {
    return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : life(a).first < life(b).first;
  });
  for (int32_t guest : guests) {
    const auto [first, last] = life(guest);
    const auto free = std::ranges::upper_bound(rooms, last, {}, &Room::until);
    if (free == rooms.end()) continue;
    const int64_t needed = buffer_room(bytes(guest));
    const int64_t most = free[std::min(kSlotsTried, rooms.end() - free) - 1].end - needed;
    const int64_t at = space.lowest_free(first, last, needed, free->begin, most);
    if (at > most) continue;
    space.take(first, last, at, needed);
    const Room& room = *std::prev(std::ranges::upper_bound(rooms, at, {}, &Room::begin));
    merge(guest, room.slot, at - room.begin);
    statistics.lodged_bytes += bytes(guest);
  }
  steps_ += space.steps();
}

}  // namespace tessera
