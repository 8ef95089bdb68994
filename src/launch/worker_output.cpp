#include "launch/worker_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {
// A line is cut here: a worker that writes no line ends must not fill the agent's memory.
constexpr size_t kMaxLine = 64 << 10;
constexpr size_t kKeptLines = 10, kKeptLineBytes = 1000;
}  // namespace

void LastLines::add(std::string_view line) {
  if (trim(line).empty()) return;
  lines_.emplace_back(line.substr(0, kKeptLineBytes));
  if (lines_.size() > kKeptLines) lines_.pop_front();
}

void write_fully(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd poll{fd, POLLOUT, 0};
      ::poll(&poll, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

WorkerOutput::WorkerOutput(FileDescriptor pipe, std::string prefix, int console,
                           const std::string& file, LastLines* last)
    : pipe_(std::move(pipe)), prefix_(std::move(prefix)), console_(console), last_(last) {
  if (file.empty()) return;
  file_ = FileDescriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) throw UserError(cat("cannot write '", file, "': ", std::strerror(errno)));
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
    if (file_) write_fully(file_.get(), text);
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
    if (console_ >= 0) marked += cat(prefix_, line, '\n');
    begin += line.size() + (cut ? 0 : 1);
  }
  pending_.erase(0, begin);
  if (!marked.empty()) write_fully(console_, marked);
}

}  // namespace tessera
