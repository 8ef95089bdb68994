#include "backends/cuda/run_timer.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera::cuda {

EventTimer::~EventTimer() {
  for (CUevent event : events_) device_.driver().release(device_.driver().event_destroy, event);
}

CUevent EventTimer::next() {
  if (used_ == events_.size()) {
    events_.push_back(nullptr);
    device_.driver().call(device_.driver().event_create, &events_.back(), kEventDefault);
  }
  return events_[used_++];
}

void EventTimer::begin_run(size_t) {
  used_ = 0;
  spans_.clear();
  CUevent begin = next();
  // An idle device takes the event in the middle of the time for which the host waits for it; the
  // host is asked again where that was long, as other work came in between.
  constexpr int64_t kShort = 50'000;
  device_.finish();
  for (int tries = 0; tries < 8; ++tries) {
    const int64_t before = monotonic_nanoseconds();
    device_.driver().call(device_.driver().event_record, begin, device_.stream(Lane::kCompute));
    device_.wait(begin);
    const int64_t waited = monotonic_nanoseconds() - before;
    begin_ = before + waited / 2;
    if (waited < kShort) break;
  }
}

void EventTimer::begins(size_t instruction, Lane lane) {
  spans_.push_back({instruction, next(), nullptr});
  device_.driver().call(device_.driver().event_record, spans_.back().begin, device_.stream(lane));
}

void EventTimer::ends(size_t, Lane lane) {
  spans_.back().end = next();
  device_.driver().call(device_.driver().event_record, spans_.back().end, device_.stream(lane));
}

std::vector<TimedWork> EventTimer::take() {
  std::vector<TimedWork> works;
  auto time_of = [&](CUevent event) {
    float milliseconds = 0;
    device_.driver().call(device_.driver().event_elapsed_time, &milliseconds, events_[0], event);
    return begin_ + std::llround(static_cast<double>(milliseconds) * 1e6);
  };
  for (const Span& span : spans_)
    works.push_back({span.instruction, {time_of(span.begin), time_of(span.end)}, "", 0});
  return works;
}

void CuptiTimer::begin_run(size_t instructions) {
  instructions_ = instructions;
  first_ = activity_->reserve(instructions);
  events_.begin_run(instructions);
}

void CuptiTimer::begins(size_t instruction, Lane lane) {
  if (lane == Lane::kGather || lane == Lane::kReduce) events_.begins(instruction, lane);
  activity_->begin_number(first_ + instruction);
}

void CuptiTimer::ends(size_t instruction, Lane lane) {
  activity_->end_number();
  if (lane == Lane::kGather || lane == Lane::kReduce) events_.ends(instruction, lane);
}

std::vector<TimedWork> CuptiTimer::take() {
  std::vector<TimedWork> works = events_.take();
  for (CuptiActivity::Work& work : activity_->take(first_, instructions_))
    works.push_back(
        {static_cast<size_t>(work.number - first_), work.at, std::move(work.name), work.bytes});
  return works;
}

std::unique_ptr<RunTimer> make_run_timer(CudaDevice& device, bool cupti) {
  std::string why = "it was asked for";
  if (cupti) {
    try {
      return std::make_unique<CuptiTimer>(device, CuptiActivity::share());
    } catch (const DeviceError& error) {
      why = error.what();
    }
  }
  TESSERA_WARN_ONCE(
      cat("The profile has the times of ops by events, not those of single kernels: ", why));
  return std::make_unique<EventTimer>(device);
}

}  // namespace tessera::cuda
