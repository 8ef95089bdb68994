#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "access_checks.h"
#include "block_runner.h"
#include "cupti_records.h"
#include "faults.h"
#include "findings.h"

namespace tessera::emulated_gpu {
namespace {

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::atoll(text) : otherwise;
}

// Runs that no test looks at say at their end what was found.
void print_findings() {
  for (const std::string& text : findings()) {
    std::fprintf(stderr, "tessera emulated GPU: %s\n", text.c_str());
  }
}

}  // namespace

Machine& machine() {
  static auto* only = new Machine;  // other threads may use it until the end of the process
  return *only;
}
int& current_device() {
  static thread_local int device = -1;
  return device;
}

Machine::Machine() {
  reset(static_cast<uint64_t>(number_from("TESSERA_EMULATED_GPU_SEED", 1)),
        static_cast<int>(number_from("TESSERA_EMULATED_GPU_DEVICES", 1)),
        number_from("TESSERA_EMULATED_GPU_MEMORY", int64_t{8} << 30));
  simt::set_approximation(static_cast<int>(number_from("TESSERA_EMULATED_GPU_APPROXIMATION", 0)));
  std::atexit(print_findings);
}

int Machine::add_stream(int device, bool blocking, const std::string& name) {
  Stream stream;
  stream.number = static_cast<int>(streams.size());
  stream.device = device;
  stream.blocking = blocking;
  stream.name = name;
  ordering.name_stream(stream.number, name);
  streams.push_back(std::move(stream));
  return static_cast<int>(streams.size()) - 1;
}

CUresult Machine::add(Stream& stream, Work work) {
  if (stream.capture >= 0) {
    Captured& capture = captures[static_cast<size_t>(stream.capture)];
    capture.steps.push_back({Step::kWork, stream.number, -1, std::move(work)});
    return cuda::kCudaSuccess;
  }
  // NCCL launches from threads of its own.
  const CuptiCall call(work.label != "NCCL");
  enqueue(stream, work);
  return cuda::kCudaSuccess;
}

void Machine::enqueue(Stream& stream, const Work& work) {
  Stream& default_stream =
      streams[static_cast<size_t>(devices[static_cast<size_t>(stream.device)].default_stream)];
  if (stream.number == default_stream.number) {
    for (Stream& other : streams) {
      if (other.blocking && other.device == stream.device && other.number != stream.number) {
        come_behind(stream, other);
      }
    }
  } else if (stream.blocking) {
    come_behind(stream, default_stream);
  }
  Operation operation;
  operation.id = next_id++;
  join(stream.clock, host);
  stream.clock.resize(std::max(stream.clock.size(), streams.size()));
  stream.clock[static_cast<size_t>(stream.number)] = operation.at = ++stream.count;
  operation.clock = stream.clock;
  operation.label = ordering.label(work.label);
  operation.after = {stream.last};
  operation.behind = {stream.known};
  if (work.prepare) operation.body = work.prepare();
  if (work.meet) operation.seats = work.meet();
  operation.is_launch = work.is_launch;
  operation.correlation = CuptiCall::current();
  stream.last = operation.id;
  stream.known = operation.known;
  unfinished.insert(operation.id);
  stream.queue.push_back(std::move(operation));
  busy.insert(stream.number);
  changed.notify_all();
}

void Machine::come_behind(Stream& stream, const Point& point) {
  join(stream.clock, point.clock);
  if (point.last == stream.last) return;
  if (!unfinished.contains(point.last)) {
    if (point.known) join(stream.clock, *point.known);
    return;
  }
  Operation operation;  // does nothing, but waits
  operation.id = next_id++;
  operation.after = {stream.last, point.last};
  operation.behind = {stream.known, point.known};
  stream.last = operation.id;
  stream.known = operation.known;
  unfinished.insert(operation.id);
  stream.queue.push_back(std::move(operation));
  busy.insert(stream.number);
}

void Machine::host_saw(const Point& point) {
  join(host, point.clock);
  if (point.known) join(host, *point.known);
}

CUresult Machine::record(Event& event, Stream& stream) {
  if (stream.device != event.device) {
    found("event: recorded in a stream of another device");
    return cuda::kCudaErrorInvalidHandle;
  }
  event.recorded = true;
  event.capture = stream.capture;
  if (stream.capture >= 0) {
    captures[static_cast<size_t>(stream.capture)].steps.push_back(
        {Step::kRecord, stream.number, event.number, {}});
    return cuda::kCudaSuccess;
  }
  event.milliseconds = std::make_shared<double>(-1.0);
  enqueue(stream, {"an event", [this, when = event.milliseconds] {
                     return [this, when]() -> std::vector<Range> {
                       *when = static_cast<double>(cupti_clock()) * 1e-6;
                       return {};
                     };
                   }});
  static_cast<Point&>(event) = stream;
  return cuda::kCudaSuccess;
}

CUresult Machine::wait(Stream& stream, Event& event) {
  constexpr CUresult kCaptureIsolation = 905;
  if (!event.recorded) return cuda::kCudaSuccess;  // has no effect
  if (event.capture < 0 && stream.capture < 0) {
    come_behind(stream, event);
    return cuda::kCudaSuccess;
  }
  if (event.capture < 0) {
    found("capture: a stream that is captured waits for an event from outside of the capture",
          stream.name);
    captures[static_cast<size_t>(stream.capture)].invalid = true;
    return kCaptureIsolation;
  }
  if (!captures[static_cast<size_t>(event.capture)].open) {
    found("capture: waits for an event of a capture that is over", stream.name);
    return kCaptureIsolation;
  }
  if (stream.capture >= 0 && stream.capture != event.capture) {
    found("capture: a stream waits for an event of another capture", stream.name);
    captures[static_cast<size_t>(stream.capture)].invalid = true;
    return kCaptureIsolation;
  }
  stream.capture = event.capture;  // it joins the capture
  captures[static_cast<size_t>(stream.capture)].steps.push_back(
      {Step::kWait, stream.number, event.number, {}});
  return cuda::kCudaSuccess;
}

bool Machine::adds_order(const Stream& stream, const Event& event) const {
  if (!event.recorded) return false;
  if (event.capture >= 0 || stream.capture >= 0) return true;
  Clock known = stream.clock;
  join(known, host);
  for (size_t n = 0; n < event.clock.size(); ++n) {
    if (event.clock[n] > (n < known.size() ? known[n] : 0)) return true;
  }
  return false;
}

void Machine::run_until(int64_t id) {
  while (unfinished.contains(id)) {
    if (!run_one()) wait_for_others();
  }
}
void Machine::wait_for_others() {
  if (!meets_processes) return changed.wait(mutex);
  changed.wait_for(mutex, std::chrono::microseconds(200));
}
void Machine::run_some(int count) {
  while (count-- > 0 && run_one()) {
  }
}

// One piece of work that is at the head of its stream and whose predecessors are done.
bool Machine::run_one() {
  std::vector<int> ready;
  for (const int number : busy) {
    const Operation& head = streams[static_cast<size_t>(number)].queue.front();
    const auto is_kept = [](const Seat& seat) {
      const Meeting& meeting = *seat.meeting;
      if (meeting.done || *seat.left) return false;
      return meeting.broken || !meeting.others || !meeting.others();
    };
    if (head.arrived && std::any_of(head.seats.begin(), head.seats.end(), is_kept)) continue;
    if (std::none_of(head.after.begin(), head.after.end(),
                     [&](int64_t id) { return unfinished.contains(id); })) {
      ready.push_back(number);
    }
  }
  if (ready.empty()) return false;
  execute(streams[static_cast<size_t>(ready[random() % ready.size()])]);
  return true;
}

void Machine::execute(Stream& stream) {
  Operation& operation = stream.queue.front();
  Device& device = devices[static_cast<size_t>(stream.device)];
  std::vector<Range> ranges;
  const int64_t begin = cupti_clock();
  if (!operation.arrived) {
    *operation.known = operation.clock;
    for (const auto& before : operation.behind)
      if (before) join(*operation.known, *before);
  }
  if (device.sticky == cuda::kCudaSuccess) {
    if (operation.is_launch && !operation.arrived) {
      fault_at(operation.seats.empty() ? "launch" : "exchange");
    }
    if (operation.is_launch && ++launches == fail_launch) {
      device.sticky = launch_error;
    } else if (!operation.seats.empty()) {
      if (!meet(stream.number, operation, &ranges)) return;
    } else if (operation.body) {
      ranges = operation.body();
    }
  }
  if (operation.correlation != 0)
    note_work(operation.correlation, ordering.text(operation.label), stream.device, stream.number,
              begin, cupti_clock(), ranges);
  finish(stream, ranges);
}

// False while others are missing. The last to come does what all have come for.
bool Machine::meet(int stream, Operation& operation, std::vector<Range>* ranges) {
  bool complete = true;
  for (const Seat& seat : operation.seats) {
    Meeting& meeting = *seat.meeting;
    if (*seat.left && !meeting.done) meeting.broken = true;
    if (!operation.arrived) {
      meeting.arrived++;
      Clock before = *operation.known;  // but not the exchange itself
      before[static_cast<size_t>(stream)]--;
      join(meeting.clock, before);
    }
    if (!meeting.done && !meeting.broken && meeting.arrived >= meeting.expected &&
        (!meeting.others || meeting.others())) {
      meeting.ranges = meeting.body();
      meeting.done = true;
      changed.notify_all();
    }
    complete = complete && (meeting.done || *seat.left);
  }
  operation.arrived = true;
  if (!complete) return false;
  for (const Seat& seat : operation.seats) {
    if (!seat.meeting->done) continue;
    const auto& own = seat.meeting->ranges[static_cast<size_t>(seat.participant)];
    ranges->insert(ranges->end(), own.begin(), own.end());
  }
  return true;
}

void Machine::finish(Stream& stream, const std::vector<Range>& ranges) {
  const Operation& operation = stream.queue.front();
  const Toucher now{stream.number, operation.at, operation.label, ++executed};
  for (const bool writes : {false, true}) {
    for (const Range& range : ranges) {
      if (range.writes != writes || range.bytes <= 0) continue;
      if (Memory* memory = memory_at(range.begin)) {
        if (operation.seats.empty()) {
          check_peers(stream.device, *memory, ordering.text(operation.label));
        }
        ordering.touch(*memory, now, *operation.known, range);
      }
    }
  }
  // What an exchange touches itself is ordered by its own stream alone.
  for (const Seat& seat : operation.seats)
    if (seat.learns && seat.meeting->done) join(*operation.known, seat.meeting->clock);
  unfinished.erase(operation.id);
  stream.queue.pop_front();
  if (stream.queue.empty()) busy.erase(stream.number);
  changed.notify_all();
}

Snapshot Machine::snapshot(const void* begin, int64_t bytes) const {
  const auto* at = static_cast<const std::byte*>(begin);
  return {at, {at, at + bytes}, executed, kernels};
}
// Whether the host has changed it: what works of the device wrote meanwhile is left out.
bool Machine::changed_since(const Snapshot& snapshot) {
  // What kernels wrote is not known where their accesses are not seen.
  if (!simt::checking && kernels > snapshot.kernels) return false;
  const Memory* memory = memory_at(snapshot.begin);
  const auto size = static_cast<int64_t>(snapshot.bytes.size());
  std::vector<bool> by_device;
  if (memory) {
    const int64_t from = snapshot.begin - memory->begin;
    for (const auto& [begin, piece] : memory->pieces) {
      if (piece.writer.executed <= snapshot.executed || begin >= from + size || piece.end <= from) {
        continue;
      }
      by_device.resize(snapshot.bytes.size());
      for (int64_t n = std::max(begin, from); n < std::min(piece.end, from + size); ++n) {
        by_device[static_cast<size_t>(n - from)] = true;
      }
    }
  }
  if (by_device.empty()) {
    return std::memcmp(snapshot.begin, snapshot.bytes.data(), snapshot.bytes.size()) != 0;
  }
  for (size_t n = 0; n < snapshot.bytes.size(); ++n) {
    if (!by_device[n] && snapshot.begin[n] != snapshot.bytes[n]) return true;
  }
  return false;
}

}  // namespace tessera::emulated_gpu
