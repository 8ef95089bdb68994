#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "flight/postmortem.h"

namespace tessera {
namespace {

constexpr size_t kEventsShown = 20, kRanksShown = 64, kWaitsShown = 10, kFramesShown = 24;

// "12:34:56.789" in UTC.
std::string clock_text(double seconds) {
  if (!(seconds > 0) || seconds > 1e11) return "?";
  const auto whole = static_cast<time_t>(seconds);
  tm parts{};
  ::gmtime_r(&whole, &parts);
  return format("%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>((seconds - static_cast<double>(whole)) * 1000));
}

const char* event_name(RingEvent event) {
  switch (event) {
    case RingEvent::kNone: return "?";
    case RingEvent::kProgramBegins: return "program begins";
    case RingEvent::kDone: return "done";
    case RingEvent::kProgramEnds: return "program ends";
    case RingEvent::kStep: return "step";
    case RingEvent::kDoing: return "doing";
    case RingEvent::kExchangeBegins: return "exchange begins";
    case RingEvent::kExchangeEnds: return "exchange ends";
    case RingEvent::kExchangeFails: return "exchange fails";
    case RingEvent::kControlBegins: return "control begins";
    case RingEvent::kControlEnds: return "control ends";
    case RingEvent::kControlFails: return "control fails";
  }
  return "?";
}

// Until when a rank was in what it is in.
double until(const Postmortem& postmortem, const RankFlight& flight) {
  if (flight.end != RingEnd::kNone) return flight.wall_seconds(flight.end_time);
  return flight.state == MakerState::kEnded ? NAN : postmortem.now;
}

std::string of_waits(const Postmortem& postmortem) {
  std::string out = "\nWho waited for whom\n";
  if (postmortem.waits.empty()) out += "  nobody was in an exchange\n";
  size_t shown = 0;
  for (const PeerWait& wait : postmortem.waits) {
    if (++shown > kWaitsShown) break;
    out += cat("  ", wait.exchange, ", number ", wait.number, " of ", wait.group, ", since ",
               clock_text(wait.since), " (", format("%.1f s", wait.seconds),
               wait.failed ? ", then given up)\n" : ")\n");
    out += cat("    in it: ", rank_list(wait.ranks), "\n");
    if (!wait.missing.empty()) out += cat("    missing: ", rank_list(wait.missing), "\n");
    if (!wait.unknown.empty())
      out += cat("    not known, since their rings are not here: ", rank_list(wait.unknown), "\n");
    if (wait.missing.empty() && wait.unknown.empty())
      out += "    all have come: it runs, or its link is slow\n";
  }
  if (postmortem.waits.size() > kWaitsShown)
    out += cat("  and ", postmortem.waits.size() - kWaitsShown, " more\n");
  for (const std::string& line : postmortem.out_of_step) out += cat("  ", line, "\n");
  return out;
}

std::string of_rank(const Postmortem& postmortem, size_t i) {
  const RankFlight& flight = postmortem.directory->ranks[i];
  const RankStory& story = postmortem.ranks[i];
  std::string out = cat("  rank ", story.rank, " (", flight.host, ", process ", flight.process,
                        "): ", story.state, "\n");
  out += cat("    ", flight.step >= 0 ? cat("step ", flight.step, ", ") : "", within(story.now));
  if (story.layer >= 0) out += cat(", layer ", story.layer);
  if (!story.program.empty()) out += cat(", program ", story.program);
  if (story.now_since > 0) {
    const double since = flight.wall_seconds(story.now_since);
    out += cat(", since ", clock_text(since));
    if (const double end = until(postmortem, flight); std::isfinite(end))
      out += format(" (%.1f s)", end - since);
  }
  out += "\n";
  if (!story.last.empty()) out += cat("    last done: ", story.last, "\n");
  for (const FlightMeeting& meeting : flight.meetings) {
    if (meeting.state == RingMeetingState::kOver) continue;
    out += cat("    ", meeting.state == RingMeetingState::kIn ? "exchange: " : "gave up: ",
               flight.text(meeting.text), ", number ", meeting.begun, ", since ",
               clock_text(flight.wall_seconds(meeting.since)), "\n");
  }
  if (story.silent_seconds >= 1)
    out += cat("    its longest pause: ", format("%.1f s ", story.silent_seconds),
               within(story.silent_in), "\n");
  return out;
}

std::string of_events(const RankFlight& flight) {
  std::string out =
      cat("\nLast events of rank ", flight.rank, " (of ", flight.events_so_far, ")\n");
  const size_t from = flight.events.size() > kEventsShown ? flight.events.size() - kEventsShown : 0;
  for (size_t i = from; i < flight.events.size(); ++i) {
    const FlightEvent& event = flight.events[i];
    out += cat("  ", clock_text(flight.wall_seconds(event.time)), "  ",
               format("%-16s", event_name(event.event)));
    if (event.event == RingEvent::kStep)
      out += cat(event.number);
    else
      out += cat(flight.text(event.text), event.number > 0 ? cat(", number ", event.number) : "");
    out += "\n";
  }
  return out;
}

// Ranks whose stacks are the same are shown once.
std::string of_stacks(const Postmortem& postmortem) {
  std::vector<NativeReport> reports;
  std::vector<int> ranks;
  for (const RankFlight& flight : postmortem.directory->ranks) {
    if (flight.report.empty()) continue;
    try {
      reports.push_back(read_report(read_file(flight.report)));
      ranks.push_back(flight.rank);
    } catch (const UserError&) {
    }
  }
  if (reports.empty())
    return "\nNative stacks: there are no reports. While the ranks run, SIGUSR2 asks for them.\n";
  name_frames(reports);
  std::map<std::string, std::vector<int>> by_text;
  for (size_t i = 0; i < reports.size(); ++i) {
    std::string text = cat("  ", reports[i].reason, "\n");
    for (const NativeStack& stack : reports[i].stacks) {
      const std::string& thread = stack.thread;  // "1234 'pool'"
      const size_t quote = thread.find('\'');
      text += cat("  thread ", quote == std::string::npos ? thread : thread.substr(quote), "\n");
      for (size_t k = 0; k < std::min(kFramesShown, stack.frames.size()); ++k)
        text += cat("    ", stack.frames[k], "\n");
    }
    by_text[text].push_back(ranks[i]);
  }
  std::vector<std::pair<std::vector<int>, std::string>> shown;
  for (auto& [text, who] : by_text) shown.emplace_back(who, text);
  std::sort(shown.begin(), shown.end());
  std::string out;
  for (const auto& [who, text] : shown)
    out += cat("\nNative stacks of rank", who.size() > 1 ? "s " : " ", rank_list(who), "\n", text);
  return out;
}

}  // namespace

std::string postmortem_text(const Postmortem& postmortem) {
  const FlightDirectory& directory = *postmortem.directory;
  const RankFlight& first = directory.ranks.front();
  std::string out =
      cat("Flight recorder of ", directory.path.string(), ": ", directory.ranks.size(), " of ",
          postmortem.world_size, postmortem.world_size == 1 ? " rank" : " ranks",
          first.attempt > 0 ? cat(", restart ", first.attempt) : "", "\n");
  if (!postmortem.absent.empty())
    out += cat("Without a ring here: ", postmortem.absent.size() == 1 ? "rank " : "ranks ",
               rank_list(postmortem.absent), "\n");
  for (const std::string& warning : directory.warnings) out += cat("Warning: ", warning, "\n");
  out += "\n";
  for (const std::string& line : postmortem_lines(postmortem)) out += cat(line, "\n");
  out += of_waits(postmortem);
  out += "\nRanks\n";
  size_t shown = 0;
  for (size_t i = 0; i < postmortem.ranks.size(); ++i) {
    const bool culprit = std::ranges::find(postmortem.culprits, postmortem.ranks[i].rank) !=
                         postmortem.culprits.end();
    if (!culprit && shown == kRanksShown) continue;
    shown += !culprit;
    out += of_rank(postmortem, i);
  }
  if (shown == kRanksShown && postmortem.ranks.size() > kRanksShown)
    out += "  and others, which --json lists\n";
  // Nobody stands out: then the first rank's.
  std::vector<int> told = postmortem.culprits;
  if (told.empty()) told.push_back(first.rank);
  if (told.size() > 4) told.resize(4);
  for (const RankFlight& flight : directory.ranks)
    if (std::ranges::find(told, flight.rank) != told.end()) out += of_events(flight);
  return out + of_stacks(postmortem);
}

}  // namespace tessera
