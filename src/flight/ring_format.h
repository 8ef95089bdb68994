#pragma once
#include <atomic>
#include <cstdint>

namespace tessera {

// The ring of a rank as it lies in its file: a RingHeader, then `capacity` RingRecords. The process
// that writes has the file mapped, and all that it does for an event is some stores, so that what a
// process that was killed has written is all there. Numbers are those of the machine,
// little-endian.
//
// Texts lie in another file, a line each, and records name them by the line's number, from 0 on. A
// line is one of these, its fields apart by tabs:
//   program   NAME INSTRUCTIONS; its instructions are the lines behind it
//   run | begin | wait | copy | fill   OP SCOPE LAYER PHASE LANE BYTES GROUP RANKS
//   exchange  LABEL ACTION BYTES GROUP RANKS
//   control   TAG KIND
//   doing     WHAT
inline constexpr char kRingMagic[8] = {'T', 'S', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kRingVersion = 1;
inline constexpr int64_t kMostRecords = int64_t{1} << 24;
inline constexpr uint32_t kNoText = ~uint32_t{0};

enum class RingEvent : uint32_t {
  kNone,
  kProgramBegins,  // text: the program; its first instruction begins
  kDone,           // text: an instruction; the one behind it begins
  kProgramEnds,    // text: the program
  kStep,           // number: of the step that begins
  kDoing,          // text: what the run does besides steps
  kExchangeBegins,
  kExchangeEnds,
  kExchangeFails,  // text: the exchange; number: its number in the group, from 1 on
  kControlBegins,
  kControlEnds,
  kControlFails,  // text: the tag; number: of the calls with it, from 1 on
};

struct RingRecord {
  std::atomic<uint64_t> sequence;  // 1 + the number of the event; 0: being written, or none yet
  int64_t time;                    // nanoseconds, monotonic_nanoseconds()
  uint32_t event;
  uint32_t text;
  int64_t number;
};
static_assert(sizeof(RingRecord) == 32 && std::atomic<uint64_t>::is_always_lock_free);

enum class RingMeetingState : uint32_t { kOver, kIn, kFailed };

// How far this rank has come in the collectives of a group, or in the calls with a tag: what other
// ranks must have come to as well.
struct RingMeeting {
  std::atomic<uint32_t> text;  // of the last one that began; kNoText: there was none
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> begun;
  std::atomic<int64_t> since;  // when the last one began
  std::atomic<int64_t> over;   // when the one before ended, or the last one where it has
};
inline constexpr int kRingMeetings = 64;

enum class RingEnd : uint32_t { kNone, kFinished, kInterrupted, kFailed, kSignal };

struct RingHeader {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t capacity;
  int32_t rank, world_size, attempt;
  uint32_t reserved;
  int64_t process;
  int64_t start_monotonic, start_wall;  // one moment by two clocks, in nanoseconds
  char host[64], job[64];
  char maker[128];  // unique_suffix() of the process

  std::atomic<uint64_t> events;  // so far
  std::atomic<int64_t> step, step_since;
  std::atomic<uint32_t> doing;
  std::atomic<uint32_t> end;    // RingEnd
  std::atomic<int32_t> signal;  // of kSignal
  std::atomic<uint32_t> meetings_used;
  std::atomic<int64_t> doing_since, end_time;
  char end_text[512];
  RingMeeting meetings[kRingMeetings];
};

}  // namespace tessera
