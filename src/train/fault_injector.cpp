#include "train/fault_injector.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/places.h"
#include "programs/job_slots.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using Action = InjectedFault::Action;
using What = InjectedFault::What;

void sleep_for(std::optional<double> seconds) {
  if (seconds) return std::this_thread::sleep_for(std::chrono::duration<double>(*seconds));
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// As if the network went: every connection of the process ends. Standard streams stay.
void drop_connections() {
  std::vector<int> open;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
    open.push_back(std::stoi(entry.path().filename().string()));
  for (const int fd : open) {
    struct stat info {};
    if (fd > STDERR_FILENO && ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode))
      ::shutdown(fd, SHUT_RDWR);
  }
}

// The highest bit of the exponent: a number becomes 2^128 times as large, or as small.
float flipped(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (uint32_t{1} << 30));
}

// One whose every number has a part in every step, other than a table of tokens.
const FlatUnit& last_trained(const Session& session) {
  const auto& units = session.programs().units;
  return *std::find_if(units.rbegin(), units.rend(),
                       [](const FlatUnit& unit) { return unit.trainable; });
}

// Of the first number of a slot.
void change(Session& session, const std::string& slot, float (*changed)(float)) {
  session.state_to_write().set_scalar(slot, changed(session.state().scalar<float>(slot)));
}

// A bit in the middle of its largest file.
void damage(const fs::path& checkpoint) {
  fs::path largest;
  uintmax_t size = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (!entry.is_regular_file() || entry.file_size() <= size) continue;
    size = entry.file_size();
    largest = entry.path();
  }
  const int fd = ::open(largest.c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  const auto middle = static_cast<off_t>(size / 2);
  const bool read = fd >= 0 && ::pread(fd, &byte, 1, middle) == 1;
  byte = static_cast<char>(byte ^ 1);
  if (!read || ::pwrite(fd, &byte, 1, middle) != 1)
    TESSERA_WARN(cat("--inject corrupt: '", largest.string(), "' cannot be changed"));
  if (fd >= 0) ::close(fd);
}

}  // namespace

FaultInjector::FaultInjector(const std::vector<std::string>& words, int rank, int world_size,
                             int attempt) {
  for (const std::string& word : words) {
    InjectedFault fault = parse_injected_fault(word);
    if (fault.rank >= world_size)
      throw UsageError(
          cat("--inject ", word, " is meant for rank ", fault.rank, ": there ",
              world_size == 1 ? "is 1 rank, 0" : cat("are ", world_size, " ranks, from 0 on")));
    if (fault.rank == rank && fault.attempt.value_or(attempt) == attempt)
      planned_.push_back({std::move(fault)});
  }
}

bool FaultInjector::is_due(Planned& planned, int64_t step, int64_t done) const {
  const InjectedFault& fault = planned.fault;
  if (planned.fired || (fault.step ? *fault.step != step : *fault.after != done)) return false;
  planned.fired = true;
  TESSERA_WARN(cat("--inject ", fault.text, ": now, at step ", step));
  return true;
}

void FaultInjector::before_gradients(int64_t step, int64_t done, Session& session) {
  for (Planned& planned : planned_) {
    const InjectedFault& fault = planned.fault;
    const bool of_gradients = fault.action == Action::kNan || fault.action == Action::kCorrupt;
    if (of_gradients && (fault.action == Action::kNan || fault.what != What::kWeights)) continue;
    const bool now = is_due(planned, step, done);
    if (now && fault.action == Action::kSlow) planned.until = step + fault.steps;
    if (planned.until && step < *planned.until) sleep_for(fault.seconds);
    if (!now) continue;
    if (fault.action == Action::kKill) ::raise(SIGKILL);
    if (fault.action == Action::kStall) sleep_for(fault.seconds);
    if (fault.action == Action::kDrop) drop_connections();
    if (fault.action == Action::kCorrupt)
      change(session, weight_slot(last_trained(session)), flipped);
  }
}

void FaultInjector::after_gradients(int64_t step, int64_t done, Session& session) {
  for (Planned& planned : planned_) {
    const InjectedFault& fault = planned.fault;
    const bool nan = fault.action == Action::kNan;
    if (!nan && (fault.action != Action::kCorrupt || fault.what != What::kGradient)) continue;
    if (!is_due(planned, step, done)) continue;
    change(session, gradient_slot(last_trained(session)),
           nan ? [](float) { return std::numeric_limits<float>::quiet_NaN(); } : flipped);
  }
}

void FaultInjector::saved(int64_t step, int64_t done, const fs::path& checkpoint) {
  for (Planned& planned : planned_) {
    const InjectedFault& fault = planned.fault;
    if (fault.action != Action::kCorrupt || fault.what != What::kCheckpoint) continue;
    // That of the step, or the first one behind it.
    const int64_t due = fault.step ? *fault.step : step - done + *fault.after;
    if (step < due || planned.fired || is_in_bucket(checkpoint)) continue;
    planned.fired = true;
    TESSERA_WARN(cat("--inject ", fault.text, ": now, in '", checkpoint.string(), "'"));
    damage(checkpoint);
  }
}

}  // namespace tessera
