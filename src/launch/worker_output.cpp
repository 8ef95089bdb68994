#include "launch/worker_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/save_request.h"
#include "base/text.h"

namespace tessera {
namespace {
// A line is cut here: a worker that writes no line ends must not fill the agent's memory.
constexpr size_t kMaxLine = 64 << 10;
constexpr size_t kKeptLines = 10, kKeptLineBytes = 1000;
}  // namespace

void LastLines::add(std::string_view line) {
  if (trim(line).empty()) return;
  has_first_step_ = has_first_step_ || line.find(kFirstStepDone) != std::string_view::npos;
  for (const bool saved : {true, false})
    if (line.find(saved ? kSavedAsAsked : kNotSavedAsAsked) != std::string_view::npos)
      has_saved_ = saved;
  lines_.emplace_back(line.substr(0, kKeptLineBytes));
  if (lines_.size() > kKeptLines) lines_.pop_front();
}

WorkerOutput::WorkerOutput(FileDescriptor pipe, const std::string& prefix, int stream, bool shown,
                           std::string file, LastLines* last)
    : pipe_(std::move(pipe)),
      prefix_(prefix),
      file_name_(std::move(file)),
      stream_(stream, prefix),
      shown_(shown),
      last_(last) {
  if (file_name_.empty()) return;
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  file_ = FileDescriptor(::open(file_name_.c_str(), flags, 0666));
  if (!file_) throw UserError(cat("cannot write '", file_name_, "': ", std::strerror(errno)));
}

void WorkerOutput::write_to_file(std::string_view text) {
  if (!file_ || write_fully(file_.get(), text) == text.size()) return;
  TESSERA_WARN(cat("cannot write '", file_name_, "': ", std::strerror(errno),
                   "; lines of this rank stand here only from now on"));
  file_.reset();
  shown_ = true;
}

void WorkerOutput::relay() {
  char bytes[64 << 10];
  while (pipe_) {
    ssize_t got = ::read(pipe_.get(), bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      emit(true);
      pipe_.reset();
      return;
    }
    std::string_view text(bytes, static_cast<size_t>(got));
    write_to_file(text);
    pending_ += text;
    emit(false);
    if (static_cast<size_t>(got) < sizeof bytes) return;  // others have their turn
  }
}

void WorkerOutput::finish() {
  relay();
  emit(true);
  pipe_.reset();
}

void WorkerOutput::emit(bool all) {
  std::string marked;
  size_t begin = 0;
  while (begin < pending_.size()) {
    size_t end = pending_.find('\n', begin);
    bool cut = end == std::string::npos;
    if (cut && !all && pending_.size() - begin < kMaxLine) break;
    std::string_view line = std::string_view(pending_).substr(begin, cut ? cut : end - begin);
    if (cut) line = std::string_view(pending_).substr(begin);
    last_->add(line);
    if (shown_ && !(taken_ && taken_(line))) marked += cat(prefix_, line, '\n');
    begin += line.size() + (cut ? 0 : 1);
  }
  pending_.erase(0, begin);
  if (!marked.empty()) stream_.write(marked);
}

}  // namespace tessera
