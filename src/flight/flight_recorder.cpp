#include "flight/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "flight/program_texts.h"
#include "profile/instruction_text.h"

namespace tessera {
namespace {

template <size_t N>
void copy_text(std::string_view text, char (&to)[N]) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), size);
  to[size] = 0;
}

int64_t wall_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

const std::filesystem::path& made(const std::filesystem::path& directory) {
  make_directories(directory);
  return directory;
}

}  // namespace

FlightRecorder::FlightRecorder(Settings settings)
    : settings_(std::move(settings)),
      texts_path_(texts_path(settings_.directory, settings_.rank)),
      report_path_(report_path(settings_.directory, settings_.rank)),
      ring_(ring_path(made(settings_.directory), settings_.rank), settings_.events),
      capacity_(static_cast<uint64_t>(settings_.events)) {
  ::unlink(report_path_.c_str());
  ::unlink(texts_path_.c_str());
  texts_fd_ = ::open(texts_path_.c_str(),
                     O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (texts_fd_ < 0)
    throw UserError(cat("cannot make '", texts_path_.string(), "': ", std::strerror(errno)));
  RingHeader& header = ring_.header();
  header.version = kRingVersion;
  header.header_bytes = sizeof(RingHeader);
  header.capacity = capacity_;
  header.rank = settings_.rank;
  header.world_size = settings_.world_size;
  header.attempt = settings_.attempt;
  header.process = ::getpid();
  header.start_monotonic = monotonic_nanoseconds();
  header.start_wall = wall_nanoseconds();
  copy_text(host_name(), header.host);
  copy_text(settings_.job, header.job);
  copy_text(unique_suffix(), header.maker);
  header.step = -1;
  header.doing = kNoText;
  for (RingMeeting& meeting : header.meetings) meeting.text = kNoText;
  // Last: what has no magic is no ring. The exchange keeps the order, as a fence would, of which
  // ThreadSanitizer knows nothing.
  header.events.exchange(0, std::memory_order_acq_rel);
  std::memcpy(header.magic, kRingMagic, sizeof kRingMagic);
}

FlightRecorder::~FlightRecorder() {
  if (texts_fd_ >= 0) ::close(texts_fd_);
}

uint32_t FlightRecorder::add_text(const std::string& line, uint32_t lines) {
  if (texts_fd_ < 0) return kNoText;
  if (write_fully(texts_fd_, line) != line.size()) {
    TESSERA_WARN(cat("cannot write '", texts_path_.string(), "': ", std::strerror(errno),
                     "; the flight recorder does not know the names of what comes from here on"));
    ::close(texts_fd_);
    texts_fd_ = -1;
    return kNoText;
  }
  const uint32_t first = lines_;
  lines_ += lines;
  return first;
}

void FlightRecorder::add_program(std::string_view name, Executable& program) {
  if (!program.plan() || !program.add_listener(*this)) return;
  const size_t instructions = program.plan()->instructions.size();
  std::lock_guard lock(mutex_);
  programs_[&program] = add_text(program_lines(name, program, settings_.rank),
                                 static_cast<uint32_t>(instructions + 1));
}

void FlightRecorder::write(RingEvent event, uint32_t text, int64_t number) {
  const uint64_t n = ring_.header().events.fetch_add(1, std::memory_order_relaxed);
  RingRecord& record = ring_.records()[n % capacity_];
  record.sequence.exchange(0, std::memory_order_acq_rel);  // before what follows
  record.time = monotonic_nanoseconds();
  record.event = static_cast<uint32_t>(event);
  record.text = text;
  record.number = number;
  record.sequence.store(n + 1, std::memory_order_release);
}

void FlightRecorder::begins(const Executable& program) {
  auto known = programs_.find(&program);
  program_ = known == programs_.end() ? kNoText : known->second;
  write(RingEvent::kProgramBegins, program_);
}

void FlightRecorder::done(size_t instruction, const TimeSpan*) {
  write(RingEvent::kDone,
        program_ == kNoText ? kNoText : program_ + 1 + static_cast<uint32_t>(instruction));
}

void FlightRecorder::ends() { write(RingEvent::kProgramEnds, program_); }

void FlightRecorder::begin_step(int64_t number) {
  RingHeader& header = ring_.header();
  header.step_since.store(monotonic_nanoseconds(), std::memory_order_relaxed);
  header.step.store(number, std::memory_order_relaxed);
  write(RingEvent::kStep, kNoText, number);
}

void FlightRecorder::doing(std::string_view what) {
  uint32_t text = kNoText;
  {
    std::lock_guard lock(mutex_);
    auto [place, is_new] = doings_.try_emplace(std::string(what), kNoText);
    if (is_new) place->second = add_text(text_line({"doing", std::string(what)}));
    text = place->second;
  }
  RingHeader& header = ring_.header();
  header.doing_since.store(monotonic_nanoseconds(), std::memory_order_relaxed);
  header.doing.store(text, std::memory_order_relaxed);
  write(RingEvent::kDoing, text);
}

void FlightRecorder::end(RingEnd end, std::string_view text, int signal) {
  RingHeader& header = ring_.header();
  if (header.end.load(std::memory_order_relaxed) != 0) return;
  copy_text(text, header.end_text);
  header.signal.store(signal, std::memory_order_relaxed);
  header.end_time.store(monotonic_nanoseconds(), std::memory_order_relaxed);
  header.end.store(static_cast<uint32_t>(end), std::memory_order_release);
}

void FlightRecorder::remove_files() {
  for (const auto& path :
       {ring_path(settings_.directory, settings_.rank), texts_path_, report_path_})
    ::unlink(path.c_str());
  // The last rank does it.
  ::rmdir(settings_.directory.c_str());
  ::rmdir(settings_.directory.parent_path().c_str());
}

RingMeeting* FlightRecorder::new_meeting() {
  RingHeader& header = ring_.header();
  const uint32_t used = header.meetings_used.load(std::memory_order_relaxed);
  if (used == kRingMeetings) return nullptr;
  header.meetings_used.store(used + 1, std::memory_order_release);
  return &header.meetings[used];
}

void FlightRecorder::meets(const Met& met, RingEvent event) {
  int64_t number = 0;
  if (met.meeting) {
    RingMeeting& meeting = *met.meeting;
    number = static_cast<int64_t>(meeting.begun.load(std::memory_order_relaxed)) + 1;
    meeting.since.store(monotonic_nanoseconds(), std::memory_order_relaxed);
    meeting.text.store(met.text, std::memory_order_relaxed);
    meeting.state.store(static_cast<uint32_t>(RingMeetingState::kIn), std::memory_order_relaxed);
    meeting.begun.store(static_cast<uint64_t>(number), std::memory_order_release);
  }
  write(event, met.text, number);
}

void FlightRecorder::has_met(const Met& met, RingEvent event, RingMeetingState state) {
  int64_t number = 0;
  if (met.meeting) {
    number = static_cast<int64_t>(met.meeting->begun.load(std::memory_order_relaxed));
    met.meeting->over.store(monotonic_nanoseconds(), std::memory_order_relaxed);
    met.meeting->state.store(static_cast<uint32_t>(state), std::memory_order_release);
  }
  write(event, met.text, number);
}

const FlightRecorder::Met& FlightRecorder::find(const CommCall& call) {
  uint64_t key = hash_text(call.label);
  for (uint64_t part : {static_cast<uint64_t>(call.group->id), static_cast<uint64_t>(call.action),
                        static_cast<uint64_t>(call.outer), static_cast<uint64_t>(call.inner)})
    key = hash_combine(key, part);
  auto [place, is_new] = calls_.try_emplace(key);
  if (!is_new) return place->second;
  std::lock_guard lock(mutex_);
  const int64_t bytes = std::max(call.input_elements() * size_of(call.dtype),
                                 call.output_elements() * size_of(call.output_dtype));
  place->second.text =
      add_text(text_line({"exchange", std::string(call.label), std::string(name(call.action)),
                          cat(bytes), call.group->name, ranks_text(call.group->ranks)}));
  auto [group, is_new_group] = groups_.try_emplace(call.group, nullptr);
  if (is_new_group) group->second = new_meeting();
  place->second.meeting = group->second;
  return place->second;
}

const FlightRecorder::Met& FlightRecorder::find(std::string_view tag, std::string_view kind) {
  std::lock_guard lock(mutex_);
  auto [place, is_new] = tags_.try_emplace(std::string(tag));
  if (is_new) {
    place->second.text = add_text(text_line({"control", std::string(tag), std::string(kind)}));
    place->second.meeting = new_meeting();
  }
  return place->second;
}

void FlightRecorder::collective_begins(const CommCall& call) {
  meets(find(call), RingEvent::kExchangeBegins);
}

void FlightRecorder::collective_ends(const CommCall& call, bool done) {
  has_met(find(call), done ? RingEvent::kExchangeEnds : RingEvent::kExchangeFails,
          done ? RingMeetingState::kOver : RingMeetingState::kFailed);
}

void FlightRecorder::control_begins(std::string_view tag, std::string_view kind) {
  meets(find(tag, kind), RingEvent::kControlBegins);
}

void FlightRecorder::control_ends(std::string_view tag, bool done) {
  has_met(find(tag, ""), done ? RingEvent::kControlEnds : RingEvent::kControlFails,
          done ? RingMeetingState::kOver : RingMeetingState::kFailed);
}

}  // namespace tessera
