#pragma once
#include <cstdint>
#include <span>

#include "runtime/control.h"

namespace tessera {

// How far the clock of this rank is ahead of rank 0's: monotonic_nanoseconds() counts from another
// moment on every host.
struct ClockOffset {
  int64_t at = 0;      // this rank's time
  int64_t offset = 0;  // nanoseconds; what is to be taken from this rank's times
  int64_t error = 0;   // the true offset is at most so far from it
};

// One meeting of two ranks, by their own clocks: each said something and then heard the other.
struct ClockRound {
  int64_t own_sent = 0, own_heard = 0;
  int64_t other_sent = 0, other_heard = 0;
};

// What is certain from causes coming before effects: own_heard is behind other_sent, and own_sent
// before other_heard. Zero where that is possible and `same_clock`, else the middle of what is.
ClockOffset clock_offset(std::span<const ClockRound> rounds, bool same_clock);

// All ranks call it together: some meetings over `control`, a few milliseconds.
ClockOffset align_clock(Control& control);

// An own time as one of rank 0's, between two alignments on a straight line.
int64_t aligned_time(int64_t own, std::span<const ClockOffset> offsets);

}  // namespace tessera
