#pragma once
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "observe/reports.h"

namespace tessera {

// A file that says where a run is, for monitors that look at its contents or at its age: one JSON
// object, {"time":..,"unix_seconds":..,"state":..,"step":..,"loss":..,"pid":..,"host":..}, replaced
// as a whole. It is written only when there is news, steps or another state, by a thread of its own
// and at most once a second: a run that hangs leaves it to age, a disk that hangs does not stop the
// run. States: "starting", what the run does ("training", "validating", ...), and at the end
// "finished", "interrupted" or "failed".
class HeartbeatFile final : public MetricsSink {
 public:
  explicit HeartbeatFile(std::filesystem::path path);
  ~HeartbeatFile() override;  // writes what is new
  void step(const StepReport& report) override;
  void validation(const ValidationReport&) override {}
  void doing(const std::string& what) override;
  void end(const EndReport& report) override;

 private:
  void loop();
  void write(const std::string& text);
  std::string text() const;

  std::filesystem::path path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = true, ends_ = false, told_ = false;
  std::string state_ = "starting";
  int64_t step_ = -1;
  double loss_ = 0, unix_seconds_ = 0;
  std::string time_;
  std::thread thread_;
};

}  // namespace tessera
