#include "flight/ring_reader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "flight/ring_file.h"

namespace tessera {
namespace {

// Texts of more are of no program: a model of 126 layers has 10 MB of them.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 28;

template <size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

FlightText parse_line(std::string_view line) {
  std::vector<std::string_view> fields = split(line, '\t');
  fields.resize(std::max<size_t>(fields.size(), 10));
  auto at = [&](size_t i) { return std::string(fields[i]); };
  FlightText text;
  text.verb = at(0);
  text.what = at(1);
  if (text.verb == "program") {
    text.kind = FlightText::Kind::kProgram;
    text.instructions = parse_number<uint32_t>(fields[2]).value_or(0);
  } else if (text.verb == "exchange") {
    text.kind = FlightText::Kind::kExchange;
    text.action = at(2);
    text.bytes = parse_number<int64_t>(fields[3]).value_or(0);
    text.group = at(4);
    text.ranks = at(5);
  } else if (text.verb == "control") {
    text.kind = FlightText::Kind::kControl;
    text.action = at(2);
  } else if (text.verb == "doing") {
    text.kind = FlightText::Kind::kDoing;
  } else if (text.verb == "run" || text.verb == "begin" || text.verb == "wait" ||
             text.verb == "copy" || text.verb == "fill") {
    text.kind = FlightText::Kind::kInstruction;
    text.scope = at(2);
    text.layer = parse_number<int32_t>(fields[3]).value_or(-1);
    text.phase = at(4);
    text.lane = at(5);
    text.bytes = parse_number<int64_t>(fields[6]).value_or(0);
    text.group = at(7);
    text.ranks = at(8);
  }
  return text;
}

std::vector<FlightText> parse_texts(std::string_view all) {
  std::vector<FlightText> texts;
  uint32_t program = kNoText, left = 0;
  for (size_t end; (end = all.find('\n')) != std::string_view::npos; all.remove_prefix(end + 1)) {
    FlightText text = parse_line(all.substr(0, end));
    if (text.kind == FlightText::Kind::kProgram) {
      program = static_cast<uint32_t>(texts.size());
      left = text.instructions;
    } else if (text.kind == FlightText::Kind::kInstruction && left > 0) {
      text.program = program;
      --left;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

RingEvent event_of(uint32_t value) {
  return value <= static_cast<uint32_t>(RingEvent::kControlFails) ? static_cast<RingEvent>(value)
                                                                  : RingEvent::kNone;
}

// The bytes of a header or a record, which another process may be changing.
template <class T>
const T& as(const std::vector<std::byte>& bytes, size_t offset) {
  return *reinterpret_cast<const T*>(bytes.data() + offset);
}

void take_header(const RingHeader& h, RankFlight& flight) {
  flight.rank = h.rank;
  flight.world_size = h.world_size;
  flight.attempt = h.attempt;
  flight.process = h.process;
  flight.host = text_of(h.host);
  flight.job = text_of(h.job);
  flight.maker = text_of(h.maker);
  flight.start_monotonic = h.start_monotonic;
  flight.start_wall = h.start_wall;
  flight.step = h.step;
  flight.step_since = h.step_since;
  flight.doing = h.doing;
  flight.doing_since = h.doing_since;
  const uint32_t end = h.end;
  if (end <= static_cast<uint32_t>(RingEnd::kSignal)) flight.end = static_cast<RingEnd>(end);
  flight.signal = h.signal;
  flight.end_time = h.end_time;
  flight.end_text = text_of(h.end_text);
  flight.events_so_far = h.events;
}

void take_meetings(const RingHeader& h, RankFlight& flight) {
  const uint32_t used = std::min<uint32_t>(h.meetings_used, kRingMeetings);
  for (uint32_t i = 0; i < used; ++i) {
    const RingMeeting& from = h.meetings[i];
    FlightMeeting meeting;
    meeting.text = from.text;
    const uint32_t state = from.state;
    if (state <= static_cast<uint32_t>(RingMeetingState::kFailed))
      meeting.state = static_cast<RingMeetingState>(state);
    meeting.begun = static_cast<int64_t>(from.begun & INT64_MAX);
    meeting.since = from.since;
    meeting.over = from.over;
    const FlightText* text = flight.find(meeting.text);
    if (!text) continue;
    meeting.is_control = text->kind == FlightText::Kind::kControl;
    flight.meetings.push_back(meeting);
  }
}

std::vector<FlightEvent> take_events(const std::vector<std::byte>& records, uint64_t capacity) {
  std::vector<FlightEvent> events;
  for (uint64_t i = 0; i < capacity; ++i) {
    const auto& record = as<RingRecord>(records, i * sizeof(RingRecord));
    const uint64_t sequence = record.sequence;
    if (sequence == 0 || (sequence - 1) % capacity != i) continue;
    const RingEvent event = event_of(record.event);
    if (event == RingEvent::kNone) continue;
    events.push_back({sequence, event, record.text, record.number, record.time});
  }
  std::sort(events.begin(), events.end(),
            [](const FlightEvent& a, const FlightEvent& b) { return a.sequence < b.sequence; });
  return events;
}

std::string whole(const ByteSource& source) {
  if (source.size() > kMostTextBytes)
    throw UserError(cat("'", source.name(), "' is too large for texts of a flight recorder"));
  std::string text(source.size(), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// The bytes of its header; none where it is no ring.
std::optional<std::vector<std::byte>> header_of(const std::filesystem::path& ring) {
  try {
    ReadFile file(ring);
    std::vector<std::byte> bytes(sizeof(RingHeader));
    if (file.size() < bytes.size()) return std::nullopt;
    file.read(0, bytes);
    const auto& header = as<RingHeader>(bytes, 0);
    if (std::memcmp(header.magic, kRingMagic, sizeof kRingMagic) != 0) return std::nullopt;
    return bytes;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// When the last of its rings was begun; the least number where it has none.
int64_t begin_of(const std::filesystem::path& attempt) {
  int64_t begin = INT64_MIN;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(attempt, error)) {
    if (entry.path().extension() != ".ring") continue;
    if (auto bytes = header_of(entry.path()))
      begin = std::max<int64_t>(begin, as<RingHeader>(*bytes, 0).start_wall);
  }
  return begin;
}

// By time: an earlier job may have had more attempts.
std::filesystem::path newest_attempt(const std::filesystem::path& directory) {
  std::filesystem::path newest = directory;
  std::pair<int64_t, int> latest{INT64_MIN, -1};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("attempt_")) continue;
    const std::pair found{begin_of(entry.path()),
                          parse_number<int>(std::string_view(name).substr(8)).value_or(-1)};
    if (found <= latest) continue;
    latest = found;
    newest = entry.path();
  }
  return newest;
}

}  // namespace

std::string FlightText::text() const {
  if (kind == Kind::kUnknown) return "?";
  if (kind == Kind::kControl) return cat("'", what, "' (", action, " of all ranks)");
  if (kind != Kind::kInstruction) return what;
  const char* before = verb == "wait"   ? "waiting for "
                       : verb == "copy" ? "copy for "
                       : verb == "fill" ? "fill for "
                                        : "";
  return cat(before, what, scope.empty() ? "" : " in ", scope, " (", phase, ")");
}

const FlightText* RankFlight::find(uint32_t line) const {
  return line < texts.size() ? &texts[line] : nullptr;
}

std::string RankFlight::text(uint32_t line) const {
  const FlightText* found = find(line);
  return found ? found->text() : "?";
}

double RankFlight::wall_seconds(int64_t time) const {
  return (static_cast<double>(start_wall) +
          (static_cast<double>(time) - static_cast<double>(start_monotonic))) /
         1e9;
}

RankFlight read_ring(const ByteSource& ring, const ByteSource* texts) {
  auto refuse = [&](std::string_view why) {
    throw UserError(cat("'", ring.name(), "' is no ring of a flight recorder: ", why));
  };
  if (ring.size() < sizeof(RingHeader)) refuse("it is too short");
  std::vector<std::byte> bytes(sizeof(RingHeader));
  ring.read(0, bytes);
  const auto& header = as<RingHeader>(bytes, 0);
  if (std::memcmp(header.magic, kRingMagic, sizeof kRingMagic) != 0)
    refuse("it does not begin as one");
  if (header.version != kRingVersion || header.header_bytes != sizeof(RingHeader))
    refuse(cat("it has version ", header.version, ", and this program reads ", kRingVersion));
  const uint64_t capacity = header.capacity;
  if (capacity == 0 || capacity > static_cast<uint64_t>(kMostRecords) ||
      ring.size() - sizeof(RingHeader) < capacity * sizeof(RingRecord))
    refuse("it is cut short");
  if (header.rank < 0 || header.world_size <= header.rank) refuse("its rank makes no sense");
  RankFlight flight;
  take_header(header, flight);
  if (texts) flight.texts = parse_texts(whole(*texts));
  take_meetings(header, flight);
  std::vector<std::byte> records(capacity * sizeof(RingRecord));
  ring.read(sizeof(RingHeader), records);
  flight.events = take_events(records, capacity);
  return flight;
}

FlightDirectory read_flights(const std::filesystem::path& given) {
  FlightDirectory directory;
  directory.path = newest_attempt(given);
  std::error_code error;
  for (std::filesystem::directory_iterator files(directory.path, error), none;
       !error && files != none; files.increment(error)) {
    const std::filesystem::path& path = files->path();
    if (path.extension() != ".ring") continue;
    try {
      std::unique_ptr<ReadFile> texts;
      std::filesystem::path beside = path;
      if (std::filesystem::exists(beside.replace_extension(".texts")))
        texts = std::make_unique<ReadFile>(beside);
      RankFlight flight = read_ring(ReadFile(path), texts.get());
      flight.state = maker_state(flight.maker);
      const std::filesystem::path report = report_path(directory.path, flight.rank);
      if (std::filesystem::exists(report)) flight.report = report;
      directory.ranks.push_back(std::move(flight));
    } catch (const UserError& problem) {
      directory.warnings.emplace_back(problem.what());
    }
  }
  if (error)
    throw UserError(cat("cannot read '", given.string(), "': ", error.message(),
                        "; give the --flight_recorder_dir of a run"));
  if (directory.ranks.empty())
    throw UserError(cat("there are no rings of a flight recorder in '", given.string(), "'",
                        directory.warnings.empty() ? "" : cat(": ", directory.warnings.front()),
                        "; give the --flight_recorder_dir of a run"));
  auto newest = std::max_element(
      directory.ranks.begin(), directory.ranks.end(),
      [](const RankFlight& a, const RankFlight& b) { return a.start_wall < b.start_wall; });
  const std::string job = newest->job;
  const int attempt = newest->attempt, world_size = newest->world_size;
  const size_t removed = std::erase_if(directory.ranks, [&](const RankFlight& flight) {
    return flight.job != job || flight.attempt != attempt || flight.world_size != world_size;
  });
  if (removed > 0) directory.warnings.push_back(cat(removed, " rings of another job are left out"));
  std::sort(directory.ranks.begin(), directory.ranks.end(),
            [](const RankFlight& a, const RankFlight& b) { return a.rank < b.rank; });
  return directory;
}

std::optional<MakerState> ring_maker_state(const std::filesystem::path& ring) {
  auto bytes = header_of(ring);
  if (!bytes) return std::nullopt;
  return maker_state(text_of(as<RingHeader>(*bytes, 0).maker));
}

}  // namespace tessera
