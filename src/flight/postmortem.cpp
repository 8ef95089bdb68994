#include "flight/postmortem.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/exit_status.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

// Ranks that are listed one by one.
constexpr size_t kMostListed = 4096;

bool is_program_event(RingEvent event) {
  return event == RingEvent::kProgramBegins || event == RingEvent::kDone ||
         event == RingEvent::kProgramEnds;
}

// The instruction that begins at an event, none where a program is over.
const FlightText* begun_at(const RankFlight& flight, const FlightEvent& event) {
  if (event.event == RingEvent::kProgramEnds || event.text == kNoText) return nullptr;
  const FlightText* text = flight.find(event.text + 1);
  return text && text->kind == FlightText::Kind::kInstruction ? text : nullptr;
}

std::string besides(const RankFlight& flight) {
  if (flight.doing == kNoText)
    return flight.step < 0 ? "before the first step" : "between two programs";
  return flight.text(flight.doing);
}

bool is_over(const RankFlight& flight) {
  return flight.end == RingEnd::kFinished || flight.end == RingEnd::kInterrupted;
}

// Of a process that is not there any more, and did not say how it ended.
void tell_end(const RankEnd& end, RankStory& story) {
  story.gone = end.signal != 0;
  if (end.asked && (end.signal == SIGTERM || end.status == kInterruptedStatus)) {
    story.state = "ended when tessera run asked it to";
    story.gone = false;
  } else if (end.asked && end.signal == SIGKILL) {
    story.state = "did not end when tessera run asked it to, and was killed";
  } else if (end.signal == SIGKILL) {
    story.state = "ended without a word: SIGKILL, by hand or because memory ran out";
  } else if (end.signal != 0) {
    story.state = cat("killed by ", ::strsignal(end.signal));
  } else {
    story.state = end.status == kStalledStatus
                      ? "ended itself, as no step was done in time (status 124)"
                      : cat("ended itself with status ", end.status);
    story.gave_up = true;
  }
}

void tell_state(const RankFlight& flight, const RankEnd* known, RankStory& story) {
  const std::string& text = flight.end_text;
  if (known && known->stopped) {
    story.state = "stopped (SIGSTOP or a debugger) when the job failed";
    story.gone = true;
    story.went_on = flight.end != RingEnd::kNone;
    return;
  }
  switch (flight.end) {
    case RingEnd::kFinished: story.state = "finished"; return;
    case RingEnd::kInterrupted: story.state = "interrupted"; return;
    case RingEnd::kFailed:
      story.state = cat("failed: ", text);
      story.went_on = true;
      return;
    case RingEnd::kSignal:
      story.state = cat("killed by ", text);
      story.gone = true;
      return;
    case RingEnd::kNone: break;
  }
  switch (flight.state) {
    case MakerState::kRunning: story.state = "running"; return;
    case MakerState::kStopped:
      story.state = "stopped (SIGSTOP or a debugger)";
      story.gone = true;
      return;
    case MakerState::kEnded:
      if (known) return tell_end(*known, story);
      story.state =
          "ended without a word: by SIGKILL, at a time limit of its own or by an early SIGTERM "
          "(its agent's log says by which)";
      story.gone = true;
      return;
    case MakerState::kUnknown: story.state = cat("not known here: it ran on ", flight.host); return;
  }
}

RankStory story_of(const RankFlight& flight, const RankEnd* known) {
  RankStory story;
  story.rank = flight.rank;
  tell_state(flight, known, story);
  story.now = besides(flight);
  story.now_since = flight.doing_since;
  const FlightEvent* before = nullptr;
  for (const FlightEvent& event : flight.events) {
    if (!is_program_event(event.event)) continue;
    if (event.event == RingEvent::kDone) story.last = flight.text(event.text);
    if (before) {
      const double seconds =
          (static_cast<double>(event.time) - static_cast<double>(before->time)) / 1e9;
      const FlightText* in = begun_at(flight, *before);
      if (in && seconds > story.silent_seconds) {
        story.silent_seconds = seconds;
        story.silent_in = in->text();
      }
    }
    before = &event;
  }
  if (!before) return story;
  if (const FlightText* in = begun_at(flight, *before)) {
    story.now = in->text();
    story.layer = in->layer;
    if (const FlightText* program = flight.find(in->program)) story.program = program->what;
  } else if (flight.doing == kNoText) {
    story.now = "no op: between two programs";
  }
  story.now_since = before->time;
  return story;
}

// What must be equal on ranks that meet: "" and the tag, or the group and its ranks.
using Key = std::tuple<std::string, std::string>;
Key key_of(const RankFlight& flight, const FlightMeeting& meeting) {
  const FlightText& text = *flight.find(meeting.text);
  return meeting.is_control ? Key{"", text.what} : Key{text.group, text.ranks};
}

class Analysis {
 public:
  Analysis(const FlightDirectory& directory, Postmortem& result, const std::map<int, RankEnd>& ends)
      : directory_(directory), result_(result), ends_(ends) {
    for (size_t i = 0; i < directory.ranks.size(); ++i) {
      const RankFlight& flight = directory.ranks[i];
      place_.try_emplace(flight.rank, i);
      if (result.ranks[i].gave_up)
        first_failure_ = std::min(first_failure_, ends.at(flight.rank).time);
      for (const FlightMeeting& meeting : flight.meetings)
        meetings_.try_emplace({flight.rank, key_of(flight, meeting)}, &meeting);
      for (const FlightMeeting& meeting : flight.meetings)
        if (meeting.state == RingMeetingState::kFailed)
          first_failure_ = std::min(first_failure_, flight.wall_seconds(meeting.over));
    }
  }

  void run() {
    for (const RankFlight& flight : directory_.ranks) {
      // One that is gone waits for nobody.
      if (is_over(flight) || result_.ranks[place_.at(flight.rank)].gone) continue;
      for (const FlightMeeting& meeting : flight.meetings)
        if (meeting.state != RingMeetingState::kOver) look_at(flight, meeting);
    }
    for (auto& [key, meets] : waits_) {
      PeerWait& wait = meets.wait;
      wait.missing.assign(meets.missing.begin(), meets.missing.end());
      wait.unknown.assign(meets.unknown.begin(), meets.unknown.end());
      if (wait.missing.empty() && wait.unknown.empty() && wait.failed) continue;
      result_.waits.push_back(std::move(wait));
    }
    std::sort(result_.waits.begin(), result_.waits.end(),
              [](const PeerWait& a, const PeerWait& b) { return a.since < b.since; });
    find_culprits();
  }

 private:
  const FlightMeeting* meeting_of(int rank, const Key& key) const {
    auto found = meetings_.find({rank, key});
    return found == meetings_.end() ? nullptr : found->second;
  }

  void look_at(const RankFlight& flight, const FlightMeeting& meeting) {
    const Key key = key_of(flight, meeting);
    const FlightText& text = *flight.find(meeting.text);
    const double since = flight.wall_seconds(meeting.since);
    // In it when its process ended, it gave up then.
    const auto end = ends_.find(flight.rank);
    const bool in_ring = meeting.state == RingMeetingState::kFailed;
    const bool failed = in_ring || end != ends_.end();
    const double until = in_ring  ? flight.wall_seconds(meeting.over)
                         : failed ? end->second.time
                                  : result_.now;
    if (failed && since >= first_failure_) return;  // the job had failed before it came
    auto [place, is_new] = waits_.try_emplace({key, meeting.begun});
    Meets& meets = place->second;
    PeerWait& wait = meets.wait;
    if (is_new || since < wait.since) {
      wait.exchange = text.text();
      wait.group = meeting.is_control ? "all ranks" : cat(text.group, " (ranks ", text.ranks, ")");
      wait.number = meeting.begun;
      wait.since = since;
      wait.seconds = until - since;
    }
    if (is_new) wait.failed = true;
    wait.failed = wait.failed && failed;
    std::vector<int> members = parse_ranks(text.ranks, flight.world_size);
    if (meeting.is_control) {
      const auto world = static_cast<size_t>(flight.world_size);
      for (size_t r = 0; r < std::min(world, kMostListed); ++r)
        members.push_back(static_cast<int>(r));
    }
    for (int rank : members) {
      if (rank == flight.rank) continue;
      if (!place_.contains(rank))
        meets.unknown.insert(rank);
      else if (!has_come(rank, key, flight, meeting, failed, until))
        meets.missing.insert(rank);
    }
    wait.ranks.push_back(flight.rank);
  }

  bool has_come(int rank, const Key& key, const RankFlight& waiter, const FlightMeeting& waits,
                bool failed, double until) {
    const RankFlight& other = directory_.ranks[place_.at(rank)];
    const FlightMeeting* theirs = meeting_of(rank, key);
    if (!theirs || theirs->begun < waits.begun) return false;
    // It came here, or got any further, when the other had given up: stopped meanwhile, it goes on
    // for a moment at the end.
    if (failed && other.wall_seconds(theirs->since) > until) return false;
    if (theirs->begun > waits.begun) return true;
    const RankStory& story = result_.ranks[place_.at(rank)];
    if (theirs->state != RingMeetingState::kOver && story.gone) return false;
    const std::string own = waiter.text(waits.text), that = other.text(theirs->text);
    if (own != that && waiter.rank < rank && result_.out_of_step.size() < 10) {
      result_.out_of_step.push_back(cat("ranks ", waiter.rank, " and ", rank,
                                        " are out of step: rank ", waiter.rank, " is in ", own,
                                        ", rank ", rank, " is in ", that));
    }
    return true;
  }

  void find_culprits() {
    std::set<int> missing, waiting;
    for (const PeerWait& wait : result_.waits) {
      missing.insert(wait.missing.begin(), wait.missing.end());
      if (!wait.missing.empty() || !wait.unknown.empty())
        waiting.insert(wait.ranks.begin(), wait.ranks.end());
    }
    for (int rank : missing) {
      if (!waiting.contains(rank) || result_.ranks[place_.at(rank)].gone)
        result_.culprits.push_back(rank);
    }
    // They wait for each other.
    if (result_.culprits.empty()) result_.culprits.assign(missing.begin(), missing.end());
    for (const RankStory& story : result_.ranks)
      if ((story.gone || (story.gave_up && !waiting.contains(story.rank))) &&
          std::ranges::find(result_.culprits, story.rank) == result_.culprits.end())
        result_.culprits.push_back(story.rank);
    std::sort(result_.culprits.begin(), result_.culprits.end());
  }

  struct Meets {
    PeerWait wait;
    std::set<int> missing, unknown;
  };

  const FlightDirectory& directory_;
  Postmortem& result_;
  const std::map<int, RankEnd>& ends_;
  double first_failure_ = std::numeric_limits<double>::infinity();
  // By exchange and number: several ranks are in the same one.
  std::map<std::pair<Key, int64_t>, Meets> waits_;
  std::map<int, size_t> place_;
  std::map<std::pair<int, Key>, const FlightMeeting*> meetings_;
};

std::string where(const RankStory& story) {
  std::string text = within(story.now);
  if (story.layer >= 0) text += cat(", layer ", story.layer);
  if (!story.program.empty()) text += cat(", program ", story.program);
  return text;
}

// Of one for whom others waited. If it went on when they had given up, the place of its longest
// pause says more than the one where it ended.
std::string culprit_line(const Postmortem& postmortem, const RankStory& story) {
  double waited = 0;
  for (const PeerWait& wait : postmortem.waits)
    if (std::ranges::find(wait.missing, story.rank) != wait.missing.end())
      waited = std::max(waited, wait.seconds);
  const std::string_view state = story.state;
  const bool failed = state.starts_with("failed: ");
  std::string line = cat("rank ", story.rank, ", ", failed ? "failed" : state, ": ");
  if (story.went_on && story.silent_seconds > waited / 2 && story.silent_seconds > 0.5)
    return cat(line, format("%.1f s ", story.silent_seconds), within(story.silent_in));
  return line + where(story);
}

}  // namespace

std::string within(const std::string& place) {
  for (std::string_view already : {"waiting ", "before ", "between "})
    if (place.starts_with(already)) return place;
  return cat("in ", place);
}

std::vector<int> parse_ranks(std::string_view text, int world_size) {
  std::vector<int> ranks;
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos) {
    for (std::string_view part : split(text, ',')) {
      const auto rank = parse_number<int>(part);
      if (!rank || *rank < 0 || *rank >= world_size) return {};
      ranks.push_back(*rank);
    }
    return ranks;
  }
  const std::string_view range = text.substr(0, slash);
  const auto first = parse_number<int>(range.substr(0, dash)),
             last = parse_number<int>(range.substr(dash + 1)),
             stride = slash == text.npos ? 1 : parse_number<int>(text.substr(slash + 1));
  if (!first || !last || !stride) return {};
  if (*first < 0 || *last >= world_size || *stride < 1) return {};
  for (int64_t rank = *first; rank <= *last && ranks.size() < kMostListed; rank += *stride)
    ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += cat(text.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) text += cat(end - i > 2 ? "-" : ",", ranks[end - 1]);
    i = end;
  }
  return text;
}

Postmortem postmortem_of(const FlightDirectory& directory, double now,
                         const std::map<int, RankEnd>& ends) {
  Postmortem result;
  result.directory = &directory;
  result.now = now;
  std::set<int> here;
  for (const RankFlight& flight : directory.ranks) {
    result.world_size = std::max(result.world_size, flight.world_size);
    const auto end = ends.find(flight.rank);
    result.ranks.push_back(story_of(flight, end == ends.end() ? nullptr : &end->second));
    here.insert(flight.rank);
  }
  for (int rank = 0; rank < result.world_size && result.absent.size() < kMostListed; ++rank)
    if (!here.contains(rank)) result.absent.push_back(rank);
  Analysis(directory, result, ends).run();
  return result;
}

std::vector<std::string> postmortem_lines(const Postmortem& postmortem) {
  std::vector<std::string> lines;
  for (const PeerWait& wait : postmortem.waits) {
    if (wait.missing.empty() || lines.size() >= 2) continue;
    lines.push_back(cat(wait.ranks.size() == 1 ? "rank " : "ranks ", rank_list(wait.ranks),
                        wait.failed              ? " waited "
                        : wait.ranks.size() == 1 ? " waits "
                                                 : " wait ",
                        format("%.1f s", wait.seconds), " for ",
                        wait.missing.size() == 1 ? "rank " : "ranks ", rank_list(wait.missing),
                        " in ", wait.exchange, ", number ", wait.number, " of ", wait.group));
  }
  for (int rank : postmortem.culprits) {
    if (lines.size() >= 4) break;
    for (const RankStory& story : postmortem.ranks)
      if (story.rank == rank) lines.push_back(culprit_line(postmortem, story));
  }
  for (const std::string& line : postmortem.out_of_step)
    if (lines.size() < 4) lines.push_back(line);
  return lines;
}

}  // namespace tessera
