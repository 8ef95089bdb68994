#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/line_writer.h"
#include "comm/file_descriptor.h"

namespace tessera {

// The last lines of a worker, for the report of its failure.
class LastLines {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }
  // Whether a line was kFirstStepDone.
  bool has_first_step() const { return has_first_step_; }
  // Whether the last answer to a request to save was kSavedAsAsked; none: there was none since the
  // last call of forget_answer().
  std::optional<bool> has_saved() const { return has_saved_; }
  void forget_answer() { has_saved_.reset(); }

 private:
  bool has_first_step_ = false;
  std::optional<bool> has_saved_;
  std::deque<std::string> lines_;
};

// Takes one stream of a worker from its pipe to the agent's own (each line with a prefix, whole
// lines only, so that those of several workers do not mix), to a file (unchanged), or to both.
class WorkerOutput {
 public:
  // `stream` is the agent's own; `file` may be "" and is appended to. With a file that cannot be
  // written any more (a warning) lines come out on the stream from there on.
  WorkerOutput(FileDescriptor pipe, const std::string& prefix, int stream, bool shown,
               std::string file, LastLines* last);

  // Lines of which it says true are not shown here.
  using Taken = std::function<bool(std::string_view line)>;
  void set_taken(Taken taken) { taken_ = std::move(taken); }

  // -1 after the end.
  int fd() const { return pipe_.get(); }
  // Takes what is there without waiting.
  void relay();
  // Takes the rest and closes, also if another process still holds the pipe.
  void finish();

 private:
  void emit(bool all);
  void write_to_file(std::string_view text);

  FileDescriptor pipe_, file_;
  std::string prefix_, pending_, file_name_;
  LineWriter stream_;
  bool shown_;
  LastLines* last_;
  Taken taken_;
};

}  // namespace tessera
