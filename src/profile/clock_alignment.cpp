#include "profile/clock_alignment.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int kRounds = 16;
constexpr const char* kTag = "profiler clock";

int64_t number(std::string_view text) {
  const auto value = parse_number<int64_t>(text);
  TESSERA_CHECK(value, std::string(text));
  return *value;
}

}  // namespace

ClockOffset clock_offset(std::span<const ClockRound> rounds, bool same_clock) {
  int64_t least = std::numeric_limits<int64_t>::min() / 2, most = -least;
  for (const ClockRound& round : rounds) {
    most = std::min(most, round.own_heard - round.other_sent);
    least = std::max(least, round.own_sent - round.other_heard);
  }
  ClockOffset result;
  if (!rounds.empty()) result.at = rounds.back().own_heard;
  if (same_clock && least <= 0 && most >= 0) return result;
  result.offset = least + (most - least) / 2;
  result.error = std::max<int64_t>(0, (most - least + 1) / 2);
  return result;
}

ClockOffset align_clock(Control& control) {
  const std::vector<std::string> machines = control.exchange(kTag, boot_id());
  const std::string& own_machine = machines[static_cast<size_t>(control.rank())];
  const bool same = !own_machine.empty() && own_machine == machines[0];
  std::vector<ClockRound> rounds;
  std::vector<int64_t> heard{0};
  // Each meeting also tells when the one before it was heard.
  for (int i = 0; i <= kRounds; ++i) {
    const int64_t sent = monotonic_nanoseconds();
    const std::vector<std::string> texts = control.exchange(kTag, cat(sent, " ", heard.back()));
    heard.push_back(monotonic_nanoseconds());
    const std::vector<std::string_view> of_first = split(texts[0], ' ');
    TESSERA_CHECK(of_first.size() == 2, texts[0]);
    if (!rounds.empty()) rounds.back().other_heard = number(of_first[1]);
    if (i < kRounds) rounds.push_back({sent, heard.back(), number(of_first[0]), 0});
  }
  if (control.rank() == 0) return {heard.back(), 0, 0};
  return clock_offset(rounds, same);
}

int64_t aligned_time(int64_t own, std::span<const ClockOffset> offsets) {
  if (offsets.empty()) return own;
  const ClockOffset &a = offsets.front(), &b = offsets.back();
  if (b.at <= a.at) return own - a.offset;
  const double part =
      std::clamp(static_cast<double>(own - a.at) / static_cast<double>(b.at - a.at), -1.0, 2.0);
  return own - a.offset - static_cast<int64_t>(part * static_cast<double>(b.offset - a.offset));
}

}  // namespace tessera
