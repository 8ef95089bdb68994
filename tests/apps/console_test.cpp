// What a person at a terminal sees of a run.
#include <pty.h>
#include <sys/ioctl.h>

#include <cctype>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

// Of a terminal as much as the program asks for: lines, the way up, clearing, no folding.
class Screen {
 public:
  explicit Screen(int columns) : columns_(columns) {}
  void feed(std::string_view bytes) {
    for (const char c : bytes) feed(c);
  }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  void feed(char c) {
    if (!escape_.empty()) {
      escape_ += c;
      if (escape_.size() > 2 && std::isalpha(c)) end_escape(c);
    } else if (c == '\x1b') {
      escape_ = c;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      if (++row_ == rows_.size()) rows_.emplace_back();
    } else {
      put(c);
    }
  }
  void put(char c) {
    if ((c & 0xc0) != 0x80 && column_ == columns_ && folds_) {
      column_ = 0;
      if (++row_ == rows_.size()) rows_.emplace_back();
    }
    if ((c & 0xc0) != 0x80) ++column_;
    rows_[row_] += c;
  }
  void end_escape(char kind) {
    const int number = std::atoi(escape_.c_str() + 2);
    if (kind == 'A') row_ -= std::min<size_t>(row_, static_cast<size_t>(number));
    if (kind == 'J') {
      rows_.resize(row_ + 1);
      rows_[row_].clear();
    }
    if (escape_ == "\x1b[?7l") folds_ = false;
    if (escape_ == "\x1b[?7h") folds_ = true;
    escape_.clear();
  }
  std::vector<std::string> rows_{""};
  std::string escape_;
  size_t row_ = 0;
  int column_ = 0, columns_;
  bool folds_ = true;
};

class Console : public ProgramTest {
 protected:
  Console() {
    winsize window{.ws_row = 40, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&terminal_, &program_side_, nullptr, nullptr, &window), 0);
    ::fcntl(terminal_, F_SETFD, FD_CLOEXEC);
  }
  ~Console() override { ::close(terminal_); }

  pid_t start_at_terminal(const Words& words) {
    const pid_t child = start(words, [this] {
      ::setenv("TERM", "xterm", 1);
      ::dup2(program_side_, 2);
    });
    ::close(program_side_);
    return child;
  }
  // Takes what comes until the text has come, or the end.
  void read_until(std::string_view text) {
    char part[4096];
    ssize_t size = 0;
    while (seen_.find(text) == std::string::npos &&
           (size = ::read(terminal_, part, sizeof part)) > 0) {
      seen_.append(part, static_cast<size_t>(size));
      screen_.feed(std::string_view(part, static_cast<size_t>(size)));
    }
  }
  static constexpr uint16_t kColumns = 70;
  int terminal_ = -1, program_side_ = -1;
  std::string seen_;
  Screen screen_{kColumns};
};

// Lines may be folded.
bool shows(const Screen& screen, std::string_view text) {
  return join(screen.rows(), "").find(text) != std::string::npos;
}

TEST_F(Console, ShowsOneBlockBelowWhatHappens) {
  const pid_t child = start_at_terminal(
      train({"--max_steps", "1000000", "--epochs", "1000000", "--checkpoint_dir", "ckpt"}));
  read_until("tokens/s");
  EXPECT_TRUE(shows(screen_, "Creating Model"));
  EXPECT_FALSE(shows(screen_, "samples/sec, lr")) << "the block is in place of those lines";
  ::kill(child, SIGTERM);
  read_until("then saving a checkpoint");
  read_until("(the end)");
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143);
  // The block is gone, and what happened stands in its order.
  EXPECT_FALSE(shows(screen_, " left"));
  EXPECT_FALSE(shows(screen_, "tokens/s"));
  EXPECT_TRUE(shows(screen_, "Terminated: finishing step "));
  EXPECT_TRUE(shows(screen_, "Completed checkpoint."));
  EXPECT_TRUE(shows(screen_, "Interrupted after step "));
  expect_contains(seen_, " of 1000000  ");
}

TEST_F(Console, AStreamThatEndsEarlyIsWholeAtItsEnd) {
  const pid_t child = start_at_terminal(train({"--streaming", "on", "--epochs", "1", "--max_steps",
                                               "1000000", "--checkpoint_dir", "ckpt"}));
  read_until("(the end)");
  EXPECT_EQ(finish(child).status, 0);
  expect_contains(seen_, " of 1000000  ");
  expect_contains(seen_, " 100 %  step ");
}

TEST_F(Console, PlainLinesWhereTheyAreWanted) {
  const pid_t child = start_at_terminal(train({"--max_steps", "3", "--console", "plain"}));
  read_until("(the end)");
  EXPECT_EQ(finish(child).status, 0);
  EXPECT_TRUE(shows(screen_, "Batch 2 Loss: "));
  EXPECT_EQ(seen_.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace tessera
