#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Writes lines to a descriptor that may fail, as on a full disk: what is lost is counted, and said
// in the place where it is missing as soon as there is room again.
class LineWriter {
 public:
  // `name` stands before what this object says itself: "tessera: ", "[rank 2] ".
  LineWriter(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  void write(std::string_view lines);
  // "7 lines are missing here: No space left on device", or "" when nothing is lost.
  std::string loss() const;

 private:
  int fd_;
  std::string name_;
  int64_t lost_ = 0;   // lines since the last that was written
  bool torn_ = false;  // of the first of them a part was written
  int cause_ = 0;
};

}  // namespace tessera
