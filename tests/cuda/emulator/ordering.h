#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

// Which work comes before which, and which bytes it touches: conflicting accesses that nothing puts
// in order are findings, whatever order they ran in.
namespace tessera::emulated_gpu {

// For each stream (0: the host) the number of its last work that comes before.
using Clock = std::vector<int64_t>;
void join(Clock& clock, const Clock& other);

struct Range {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool writes = false;
};

// A piece of work of a stream that touches memory.
struct Toucher {
  int stream = -1;
  int64_t at = 0;  // its number in the stream
  int label = -1;
  int64_t executed = 0;  // when it ran, counted over all work
};

struct SharedMemory;

struct Memory {
  struct Piece {
    int64_t end = 0;
    Toucher writer;
    std::vector<Toucher> readers;
  };
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  int64_t mapped = 0;
  int device = -1;  // -1: pinned memory of the host
  bool freed = false;
  int opened = 0;                        // of another process: how often it was opened here
  std::shared_ptr<SharedMemory> shared;  // where another process may have it, or has made it
  int registered = 0;                    // with communicators of NCCL: how often
  std::string name;
  std::map<int64_t, Piece> pieces;  // by where they begin
};

class Ordering {
 public:
  int label(const std::string& text);
  const std::string& text(int label) const { return labels_[static_cast<size_t>(label)]; }
  void name_stream(int stream, const std::string& name) { streams_[stream] = name; }
  // `clock`: what comes before `now`.
  void touch(Memory& memory, const Toucher& now, const Clock& clock, const Range& range);
  // Somebody who has not come before `clock`, or null.
  const Toucher* unordered(const Memory& memory, const Clock& clock) const;
  std::string who(const Toucher& t) const;

 private:
  std::vector<std::string> labels_;
  std::map<std::string, int> label_numbers_;
  std::map<int, std::string> streams_;
};

}  // namespace tessera::emulated_gpu
