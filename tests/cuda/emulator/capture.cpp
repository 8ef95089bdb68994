// Capture into graphs, and their replay.
#include <algorithm>

#include "cupti_records.h"
#include "findings.h"
#include "machine.h"

namespace tessera::emulated_gpu {

bool Machine::may_call(const std::string& call) {
  bool allowed = true;
  for (Captured& capture : captures) {
    if (!capture.open) continue;
    const bool own = capture.thread == std::this_thread::get_id();
    if (capture.mode == cuda::kStreamCaptureModeThreadLocal && !own) continue;
    found("capture: " + call + " is not allowed while a stream is captured");
    capture.invalid = true;
    allowed = false;
  }
  return allowed;
}

CUresult Machine::begin_capture(Stream& stream, int mode) {
  if (stream.number == devices[static_cast<size_t>(stream.device)].default_stream) {
    found("capture: the default stream cannot be captured");
    return cuda::kCudaErrorStreamCaptureUnsupported;
  }
  if (stream.capture >= 0) {
    found("capture: begun on a stream that is captured already", stream.name);
    return cuda::kCudaErrorStreamCaptureInvalidated;
  }
  Captured capture;
  capture.origin = stream.number;
  capture.device = stream.device;
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  stream.capture = static_cast<int>(captures.size());
  captures.push_back(std::move(capture));
  return cuda::kCudaSuccess;
}

CUresult Machine::end_capture(Stream& stream, int* graph) {
  constexpr CUresult kWrongThread = 908, kUnmatched = 903;
  if (stream.capture < 0) {
    found("capture: ended on a stream that is not captured", stream.name);
    return cuda::kCudaErrorInvalidValue;
  }
  const int number = stream.capture;
  Captured& capture = captures[static_cast<size_t>(number)];
  if (capture.origin != stream.number) {
    found("capture: ended on another stream than it was begun on", stream.name);
    capture.invalid = true;
    return kUnmatched;
  }
  if (capture.mode != 2 && capture.thread != std::this_thread::get_id()) {
    found("capture: ended by another thread than it was begun by", stream.name);
    return kWrongThread;
  }
  // All work of streams that joined must come before the end of the first one.
  std::map<int, std::map<int, int64_t>> clocks, at_event;
  std::map<int, int64_t> count;
  for (const Step& step : capture.steps) {
    auto& clock = clocks[step.stream];
    if (step.kind == Step::kWork) clock[step.stream] = ++count[step.stream];
    if (step.kind == Step::kRecord) at_event[step.event] = clock;
    if (step.kind == Step::kWait) {
      // Even without work of its own a stream that joined has to be joined.
      clock[step.stream] = ++count[step.stream];
      for (const auto& [other, at] : at_event[step.event])
        clock[other] = std::max(clock[other], at);
    }
  }
  // Not a finding: a capture that is given up is ended so, and others hear of it by the result.
  const bool joined = std::ranges::all_of(count, [&](const auto& entry) {
    return clocks[capture.origin][entry.first] >= entry.second;
  });
  capture.open = false;
  for (Stream& other : streams) {
    if (other.capture == number) other.capture = -1;
  }
  capture.destroyed = capture.invalid || !joined;
  changed.notify_all();
  if (capture.invalid) return cuda::kCudaErrorStreamCaptureInvalidated;
  if (!joined) return cuda::kCudaErrorStreamCaptureUnjoined;
  *graph = number;
  return cuda::kCudaSuccess;
}

void Machine::replay(Executable& executable, Stream& stream) {
  const Captured& graph = captures[static_cast<size_t>(executable.graph)];
  const CuptiCall call;
  ++graph_launches;
  for (const Step& step : graph.steps) {
    if (executable.own_streams.contains(step.stream)) continue;
    executable.own_streams[step.stream] = add_stream(
        stream.device, false, streams[static_cast<size_t>(step.stream)].name + " (graph)");
  }
  // One launch of a graph comes behind the one before, and behind what the stream holds.
  come_behind(stream, executable);
  const auto own = [&](int number) -> Stream& {
    return streams[static_cast<size_t>(executable.own_streams.at(number))];
  };
  for (const auto& [captured, number] : executable.own_streams) {
    come_behind(streams[static_cast<size_t>(number)], stream);
  }
  std::map<int, Point> recorded;
  for (const Step& step : graph.steps) {
    Stream& at = own(step.stream);
    if (step.kind == Step::kWork) enqueue(at, step.work);
    if (step.kind == Step::kRecord) recorded[step.event] = at;
    if (step.kind == Step::kWait) come_behind(at, recorded[step.event]);
  }
  for (const auto& [captured, number] : executable.own_streams) {
    come_behind(stream, streams[static_cast<size_t>(number)]);
  }
  static_cast<Point&>(executable) = stream;
}

}  // namespace tessera::emulated_gpu
