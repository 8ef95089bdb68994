#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>

namespace tessera {

// The native stacks of a process's threads, taken while it runs. A thread that takes part has an
// alternate stack for signals, so that what is written to take its frames never lands where a
// kernel keeps something else (docs/decisions/0018-signals-have-no-handlers.md); others, those of
// libraries, are left alone. Under a sanitizer nobody takes part.

// The calling thread takes part as long as this lives, on the same thread.
class ShowsStack {
 public:
  explicit ShowsStack(const char* name);
  ~ShowsStack();
  ShowsStack(const ShowsStack&) = delete;
  ShowsStack& operator=(const ShowsStack&) = delete;

 private:
  void* stack_ = nullptr;
  int entry_ = -1;
};

struct ThreadStack {
  static constexpr int kMostFrames = 48;
  pid_t thread = 0;
  char name[16] = "";
  bool answered = false;  // false: it did not within half a second, and there are no frames
  int frames = 0;
  std::array<void*, kMostFrames> addresses = {};  // the innermost first
};

// Calls `take` with the stack of every thread that takes part, the calling one's first if it does.
// Safe in a handler of a signal, which gives the third argument of its own: then the stack begins
// where the signal came. One caller at a time: false for another, who is called back with nothing.
bool take_thread_stacks(void (*take)(const ThreadStack& stack, void* context), void* context,
                        const void* signal_context = nullptr);

// Whether this program is built with a sanitizer that has handlers of its own.
bool has_sanitizer();

}  // namespace tessera
