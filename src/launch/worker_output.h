#pragma once
#include <deque>
#include <optional>
#include <string>

#include "comm/file_descriptor.h"

namespace tessera {

// The last lines of a worker, for the report of its failure.
class LastLines {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

// Takes one stream of a worker from its pipe to the agent's own (each line with a prefix, whole
// lines only, so that those of several workers do not mix), to a file (unchanged), or to both.
class WorkerOutput {
 public:
  // `console` is a descriptor of the agent, or -1; `file` may be "" and is appended to.
  WorkerOutput(FileDescriptor pipe, std::string prefix, int console, const std::string& file,
               LastLines* last);

  // -1 after the end.
  int fd() const { return pipe_.get(); }
  // Takes what is there without waiting.
  void relay();
  // Takes the rest and closes, also if another process still holds the pipe.
  void finish();

 private:
  void emit(bool all);

  FileDescriptor pipe_, file_;
  std::string prefix_, pending_;
  int console_;
  LastLines* last_;
};

// Writes everything, also to a descriptor that does not block; gives up when nobody reads.
void write_fully(int fd, std::string_view text);

}  // namespace tessera
