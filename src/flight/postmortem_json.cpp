#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "flight/postmortem.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json of_exchange(const RankFlight& flight, const FlightMeeting& meeting) {
  const FlightText& text = *flight.find(meeting.text);
  const char* state = meeting.state == RingMeetingState::kIn       ? "in"
                      : meeting.state == RingMeetingState::kFailed ? "failed"
                                                                   : "over";
  return {{"exchange", text.text()},
          {"kind", meeting.is_control ? "control" : text.action},
          {"group", meeting.is_control ? "" : text.group},
          {"ranks", text.ranks},
          {"bytes", text.bytes},
          {"number", meeting.begun},
          {"state", state},
          {"since", flight.wall_seconds(meeting.since)}};
}

Json of_rank(const RankFlight& flight, const RankStory& story) {
  Json rank{{"rank", story.rank},
            {"host", flight.host},
            {"process", flight.process},
            {"state", story.state},
            {"step", flight.step},
            {"in", story.now},
            {"program", story.program},
            {"since", flight.wall_seconds(story.now_since)},
            {"last_done", story.last},
            {"events", flight.events_so_far},
            {"report", flight.report.string()}};
  if (story.layer >= 0) rank["layer"] = story.layer;
  if (flight.end == RingEnd::kSignal) rank["signal"] = flight.signal;
  rank["exchanges"] = Json::array();
  for (const FlightMeeting& meeting : flight.meetings)
    rank["exchanges"].push_back(of_exchange(flight, meeting));
  return rank;
}

}  // namespace

std::string postmortem_json(const Postmortem& postmortem) {
  const FlightDirectory& directory = *postmortem.directory;
  Json all{{"directory", directory.path.string()},
           {"job", directory.ranks.front().job},
           {"attempt", directory.ranks.front().attempt},
           {"world_size", postmortem.world_size},
           {"absent", postmortem.absent},
           {"culprits", postmortem.culprits},
           {"summary", postmortem_lines(postmortem)},
           {"warnings", directory.warnings},
           {"out_of_step", postmortem.out_of_step}};
  all["waits"] = Json::array();
  for (const PeerWait& wait : postmortem.waits)
    all["waits"].push_back({{"exchange", wait.exchange},
                            {"group", wait.group},
                            {"number", wait.number},
                            {"since", wait.since},
                            {"seconds", wait.seconds},
                            {"given_up", wait.failed},
                            {"ranks", wait.ranks},
                            {"missing", wait.missing},
                            {"unknown", wait.unknown}});
  std::vector<NativeReport> reports(directory.ranks.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    if (directory.ranks[i].report.empty()) continue;
    try {
      reports[i] = read_report(read_file(directory.ranks[i].report));
    } catch (const UserError&) {
    }
  }
  name_frames(reports);
  all["ranks"] = Json::array();
  for (size_t i = 0; i < reports.size(); ++i) {
    Json rank = of_rank(directory.ranks[i], postmortem.ranks[i]);
    rank["stacks"] = Json::array();
    for (const NativeStack& stack : reports[i].stacks)
      rank["stacks"].push_back({{"thread", stack.thread}, {"frames", stack.frames}});
    all["ranks"].push_back(std::move(rank));
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
