#pragma once
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace tessera {

// Finds the first node that produced a value which is not finite: replay a step with it.
class NonFiniteFinder {
 public:
  NodeObserver observer() {
    return [this](const NodeEvent& event) { look(event); };
  }
  // "swiglu in layers.3.mlp (forward)"; "" if every value was finite.
  const std::string& first() const { return first_; }

 private:
  void look(const NodeEvent& event);
  std::string first_;
};

// Writes a hash of every output of every node: lines "STEP INDEX SCOPE PHASE OP OUTPUT HASH",
// separated by tabs. Two runs of the same program can then be compared line by line. When it cannot
// be written any more a warning says so, and nothing is recorded from there on.
class HashRecorder {
 public:
  explicit HashRecorder(const std::string& path);  // UserError if it cannot be written
  void begin_step(int64_t step);
  NodeObserver observer() {
    return [this](const NodeEvent& event) { record(event); };
  }

 private:
  void record(const NodeEvent& event);
  void give_up();
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t step_ = 0, index_ = 0;
};

// Adds up time by op and phase.
class OpTimer {
 public:
  struct Row {
    std::string op;
    Phase phase = Phase::kForward;
    bool contracts = false;
    int64_t launches = 0;
    double seconds = 0, flops = 0, bytes = 0;
  };
  NodeObserver observer() {
    return [this](const NodeEvent& event) { add(event); };
  }
  std::vector<Row> rows() const;  // longest first

 private:
  void add(const NodeEvent& event);
  std::map<std::pair<std::string, Phase>, Row> rows_;
};

}  // namespace tessera
