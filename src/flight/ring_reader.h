#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process_identity.h"
#include "flight/ring_format.h"

namespace tessera {

// A line of the texts (ring_format.h).
struct FlightText {
  enum class Kind { kUnknown, kProgram, kInstruction, kExchange, kControl, kDoing };
  Kind kind = Kind::kUnknown;
  std::string verb;  // of an instruction: run, begin, wait, copy, fill
  std::string what;  // op, program, label, tag
  std::string scope, phase, lane, action;
  int32_t layer = -1;  // none
  int64_t bytes = 0;
  std::string group, ranks;  // of an exchange
  uint32_t program = kNoText;
  uint32_t instructions = 0;  // of a program

  // "linear in layers.3.mlp (forward)", "waiting for all_gather in ...".
  std::string text() const;
};

struct FlightEvent {
  uint64_t sequence = 0;
  RingEvent event = RingEvent::kNone;
  uint32_t text = kNoText;
  int64_t number = 0, time = 0;  // nanoseconds on the clock of the ring
};

struct FlightMeeting {
  uint32_t text = kNoText;
  RingMeetingState state = RingMeetingState::kOver;
  int64_t begun = 0;
  int64_t since = 0, over = 0;  // times of the ring, as in RingMeeting
  bool is_control = false;
};

// What the ring of one rank holds.
struct RankFlight {
  int rank = 0, world_size = 1, attempt = 0;
  int64_t process = 0;
  std::string host, job, maker;
  int64_t start_monotonic = 0, start_wall = 0;
  MakerState state = MakerState::kUnknown;  // when it was read, on this machine

  int64_t step = -1, step_since = 0;  // -1: before the first one
  uint32_t doing = kNoText;
  int64_t doing_since = 0;
  RingEnd end = RingEnd::kNone;
  int signal = 0;
  int64_t end_time = 0;
  std::string end_text;
  std::vector<FlightMeeting> meetings;
  std::vector<FlightEvent> events;  // those that are whole, the oldest first
  uint64_t events_so_far = 0;
  std::vector<FlightText> texts;
  std::filesystem::path report;  // the newest one's file; "" where there is none

  // "?" where there is no such line.
  std::string text(uint32_t line) const;
  const FlightText* find(uint32_t line) const;
  // Seconds since 1970 of a time of its clock.
  double wall_seconds(int64_t time) const;
};

// Texts are read to their last whole line. UserError for what is no ring, a part of one, or one of
// another version.
RankFlight read_ring(const ByteSource& ring, const ByteSource* texts);

// Of a directory: of the attempt below it that began last, and of its newest job. Sorted by rank.
// UserError where there are no rings; what is wrong with a single one is in `warnings`.
struct FlightDirectory {
  std::filesystem::path path;
  std::vector<RankFlight> ranks;
  std::vector<std::string> warnings;
};
FlightDirectory read_flights(const std::filesystem::path& directory);

// What is known of the process that made the ring; nullopt where it is no ring, or none yet.
std::optional<MakerState> ring_maker_state(const std::filesystem::path& ring);

}  // namespace tessera
