#pragma once
#include <atomic>
#include <deque>
#include <string>

#include "backends/cuda/driver.h"

namespace tessera::cuda {

// A program that tells its listeners how far the device is in a run of it.
class WatchedProgram {
 public:
  virtual void device_begins() = 0;
  virtual void device_is_on() = 0;  // looks how far it is
  virtual void device_ends() = 0;
  // "a wait for all_gather in layers.3 (forward)", or the first and the last op of the part between
  // two marks; "" where it does not know.
  virtual std::string device_is_in() const = 0;

 protected:
  ~WatchedProgram() = default;
};

// The runs that a device has been given and that somebody watches, the oldest first: it works on
// one after another. Nothing waits here; who waits for the device looks now and then, and so does a
// thread that does nothing else. Used under the device's lock, but for empty() and stop().
class RunsInFlight {
 public:
  explicit RunsInFlight(const Driver& driver) : driver_(driver) {}

  bool empty() const { return count_ == 0; }
  // `done`: comes about when the run is over; not recorded anew before the run has been seen so.
  void add(WatchedProgram& program, CUevent done);
  void remove(const WatchedProgram& program);
  // Tells what can be seen now. A device that has failed is where it was.
  void look();
  // The job has failed: whatever the device still does, for the listeners it stays where it was.
  void stop() { stopped_ = true; }
  std::string where() const { return runs_.empty() ? "" : runs_.front().program->device_is_in(); }

 private:
  struct Run {
    WatchedProgram* program;
    CUevent done;
  };
  const Driver& driver_;
  std::deque<Run> runs_;
  std::atomic<size_t> count_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace tessera::cuda
