#include "doctor/link_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/median.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int kExchanges = 50, kTransfers = 4, kClockRounds = 9;
// A pair transfers for so long: its best is then not that of a moment in which others had the
// cores. All rounds together take no longer than the second where there are many.
constexpr double kTransferSeconds = 0.1, kTransferSecondsOfAll = 10;

// Whom rank `self` meets in a round; itself where it has a rest. With an even number of players all
// meet all in one less rounds: the last one stays, the others go round.
int partner(int self, int round, int ranks) {
  const int players = ranks + ranks % 2, last = players - 1;
  int other = 0;
  if (self == last) {
    // Who meets the one that stays: 2 x = round.
    other = round % 2 == 0 ? round / 2 : (round + last) / 2;
  } else {
    other = ((round - self) % last + last) % last;
    if (other == self) other = last;
  }
  return other < ranks ? other : self;
}

Link measure(Communicator& communicator, const CommGroup& pair, int64_t bytes, double at_least,
             HostBuffer& from, HostBuffer& to) {
  CommCall small{.action = CommAction::kAllReduce,
                 .group = &pair,
                 .inner = 1,
                 .input = from.data(),
                 .output = to.data(),
                 .label = "latency"};
  Link link{pair.ranks[0], pair.ranks[1]};
  std::vector<double> seconds;
  for (int i = 0; i < kExchanges; ++i) {
    const double start = monotonic_seconds();
    communicator.run(small);
    seconds.push_back(monotonic_seconds() - start);
  }
  link.latency = upper_median(seconds);
  CommCall large = small;
  large.action = CommAction::kAllGather;
  large.inner = bytes / size_of(DType::kF32);
  large.label = "bandwidth";
  // Both go by the sum of their times, so that both do as many.
  float of_both = 0;
  double spent = 0;
  for (int i = 0; i < kTransfers || of_both < 2 * at_least; ++i) {
    const double start = monotonic_seconds();
    communicator.run(large);
    const double passed = monotonic_seconds() - start;
    link.bandwidth = std::max(link.bandwidth, static_cast<double>(bytes) / passed);
    const auto own = static_cast<float>(spent += passed);
    std::memcpy(from.data(), &own, sizeof own);
    communicator.run(small);
    std::memcpy(&of_both, to.data(), sizeof of_both);
  }
  return link;
}

}  // namespace

std::vector<Link> measure_links(const Channels& channels, int64_t bytes) {
  Communicator& communicator = *channels.communicator;
  const int self = communicator.rank(), ranks = communicator.world_size();
  HostBuffer from = communicator.allocate(bytes), to = communicator.allocate(2 * bytes);
  std::memset(from.data(), 0, static_cast<size_t>(bytes));
  std::string own;
  const int rounds = ranks - 1 + ranks % 2;
  for (int round = 0; round < rounds; ++round) {
    const int other = partner(self, round, ranks);
    std::vector<int> members{std::min(self, other)};
    if (other != self) members.push_back(std::max(self, other));
    const CommGroup& pair = communicator.make_group(members, cat("pair of round ", round));
    channels.control->barrier("links");
    if (other == self) continue;
    const double at_least = std::min(kTransferSeconds, kTransferSecondsOfAll / rounds);
    const Link link = measure(communicator, pair, bytes, at_least, from, to);
    if (self == link.low)
      own += format("%d %d %.9g %.9g\n", link.low, link.high, link.latency, link.bandwidth);
  }
  std::vector<Link> all;
  for (const std::string& text : channels.control->exchange("all links", own)) {
    for (std::string_view line : split(text, '\n')) {
      Link link;
      if (std::sscanf(std::string(line).c_str(), "%d %d %lg %lg", &link.low, &link.high,
                      &link.latency, &link.bandwidth) == 4)
        all.push_back(link);
    }
  }
  return all;
}

std::vector<double> clock_offsets(Control& control) {
  std::vector<std::vector<double>> rounds(static_cast<size_t>(control.world_size()));
  for (int i = 0; i < kClockRounds; ++i) {
    control.barrier("clocks");
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::vector<std::string> all = control.exchange("clocks of all", format("%.9f", now));
    for (size_t rank = 0; rank < all.size(); ++rank)
      rounds[rank].push_back(std::stod(all[rank]) - std::stod(all[0]));
  }
  std::vector<double> offsets;
  for (const std::vector<double>& round : rounds) offsets.push_back(upper_median(round));
  return offsets;
}

}  // namespace tessera
