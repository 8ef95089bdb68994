#include "observe/heartbeat_file.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "observe/event_time.h"

namespace tessera {
namespace {
constexpr std::chrono::seconds kPause{1};
}

HeartbeatFile::HeartbeatFile(std::filesystem::path path)
    : path_(std::move(path)), unix_seconds_(unix_seconds()), time_(utc_time()) {
  remove_leftovers_of(path_);        // of an attempt that was killed while it wrote
  write_file_atomic(path_, text());  // what cannot be written is said before anything is done
  news_ = false;
  thread_ = std::thread([this] { loop(); });
}

HeartbeatFile::~HeartbeatFile() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HeartbeatFile::step(const StepReport& report) {
  std::lock_guard lock(mutex_);
  step_ = report.batch + 1;
  loss_ = report.loss;
  unix_seconds_ = unix_seconds();
  time_ = utc_time();
  news_ = true;
  changed_.notify_all();
}

void HeartbeatFile::doing(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (state_ == what) return;
  state_ = what;
  unix_seconds_ = unix_seconds();
  time_ = utc_time();
  news_ = true;
  changed_.notify_all();
}

void HeartbeatFile::end(const EndReport& report) {
  doing(report.failed ? "failed" : report.interrupted ? "interrupted" : "finished");
}

std::string HeartbeatFile::text() const {
  return cat("{\"time\":\"", time_, "\",\"unix_seconds\":", format("%.3f", unix_seconds_),
             ",\"state\":\"", state_, "\"",
             step_ >= 0 ? cat(",\"step\":", step_,
                              ",\"loss\":", std::isfinite(loss_) ? cat(loss_) : "null")
                        : "",
             ",\"pid\":", ::getpid(), ",\"host\":\"", host_name(), "\"}\n");
}

void HeartbeatFile::write(const std::string& text) {
  try {
    write_file_atomic(path_, text);
  } catch (const UserError& error) {
    if (!std::exchange(told_, true))
      TESSERA_WARN(cat("--heartbeat_file: ", error.what(), "; the run goes on"));
  }
}

void HeartbeatFile::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return news_ || ends_; });
    if (!news_) return;
    news_ = false;
    const std::string now = text();
    lock.unlock();
    write(now);
    lock.lock();
    changed_.wait_for(lock, kPause, [&] { return ends_; });
  }
}

}  // namespace tessera
