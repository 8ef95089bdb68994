#include "base/thread_stacks.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <mutex>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define TESSERA_HAS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_HAS_SANITIZER
#endif

namespace tessera {
namespace {

// With the state of AMX a frame of the kernel takes 11 KiB; unwinding needs a few more.
constexpr size_t kStackBytes = size_t{64} << 10, kGuardBytes = 4096;
constexpr int kMostThreads = 512;
constexpr int kPatienceMilliseconds = 500;

struct Entry {
  std::atomic<pid_t> thread{0};  // 0: free
  std::atomic<bool> answered{false};
  ThreadStack stack;
};

Entry entries[kMostThreads];
std::atomic<bool> busy{false};
thread_local Entry* own = nullptr;
constinit std::mutex mutex;  // of changes

void answer(Entry& entry, const void* signal_context) {
  ThreadStack& stack = entry.stack;
  stack.frames = ::backtrace(stack.addresses.data(), ThreadStack::kMostFrames);
#ifdef __x86_64__
  if (signal_context) {
    // Without the frames of the handler.
    const auto& context = *static_cast<const ucontext_t*>(signal_context);
    const auto at = reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP]);
    auto* begin = stack.addresses.data();
    auto* end = begin + stack.frames;
    if (auto* found = std::find(begin, end, at); found != end)
      stack.frames = static_cast<int>(std::copy(found, end, begin) - begin);
  }
#else
  (void)signal_context;
#endif
  entry.answered.store(true, std::memory_order_release);
}

void on_request(int, siginfo_t*, void* context) {
  const int error = errno;
  if (own) answer(*own, context);
  errno = error;
}

int request_signal() { return SIGRTMIN + 4; }

void install_once() {
  static const bool once = [] {
    void* first[2];
    ::backtrace(first, 2);  // loads what it needs, which a handler may not
    struct sigaction action {};
    action.sa_sigaction = on_request;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigfillset(&action.sa_mask);
    ::sigaction(request_signal(), &action, nullptr);
    return true;
  }();
  (void)once;
}

}  // namespace

bool has_sanitizer() {
#ifdef TESSERA_HAS_SANITIZER
  return true;
#else
  return false;
#endif
}

ShowsStack::ShowsStack(const char* name) {
  if (has_sanitizer() || own) return;
  void* memory = ::mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  ::mprotect(memory, kGuardBytes, PROT_NONE);
  stack_t stack{};
  stack.ss_sp = static_cast<char*>(memory) + kGuardBytes;
  stack.ss_size = kStackBytes;
  if (::sigaltstack(&stack, nullptr) != 0) {
    ::munmap(memory, kStackBytes + kGuardBytes);
    return;
  }
  stack_ = memory;
  install_once();
  std::lock_guard lock(mutex);
  for (int i = 0; i < kMostThreads; ++i) {
    Entry& entry = entries[i];
    if (entry.thread.load(std::memory_order_relaxed) != 0) continue;
    entry_ = i;
    entry.stack = {};
    entry.stack.thread = static_cast<pid_t>(::syscall(SYS_gettid));
    std::snprintf(entry.stack.name, sizeof entry.stack.name, "%s", name);
    own = &entry;
    entry.thread.store(entry.stack.thread, std::memory_order_release);
    return;
  }
}

ShowsStack::~ShowsStack() {
  if (!stack_) return;
  if (entry_ >= 0) {
    std::lock_guard lock(mutex);
    own = nullptr;
    entries[entry_].thread.store(0, std::memory_order_release);
  }
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(stack_, kStackBytes + kGuardBytes);
}

bool take_thread_stacks(void (*take)(const ThreadStack& stack, void* context), void* context,
                        const void* signal_context) {
  if (busy.exchange(true, std::memory_order_acquire)) return false;
  const pid_t process = ::getpid();
  pid_t asked[kMostThreads] = {};
  if (own) {
    answer(*own, signal_context);
    own->stack.answered = true;
    take(own->stack, context);
  }
  for (int i = 0; i < kMostThreads; ++i) {
    Entry& entry = entries[i];
    const pid_t thread = entry.thread.load(std::memory_order_acquire);
    if (thread == 0 || &entry == own) continue;
    entry.answered.store(false, std::memory_order_relaxed);
    if (::syscall(SYS_tgkill, process, thread, request_signal()) == 0) asked[i] = thread;
  }
  int left = kPatienceMilliseconds;
  for (int i = 0; i < kMostThreads; ++i) {
    if (asked[i] == 0) continue;
    Entry& entry = entries[i];
    while (!entry.answered.load(std::memory_order_acquire) && left > 0) {
      const timespec nap{0, 1'000'000};
      ::nanosleep(&nap, nullptr);
      --left;
    }
    ThreadStack copy;
    const bool answered = entry.answered.load(std::memory_order_acquire);
    if (answered) copy = entry.stack;
    copy.thread = asked[i];
    if (!answered) {
      for (size_t k = 0; k < sizeof copy.name; ++k) copy.name[k] = entry.stack.name[k];
      copy.frames = 0;
    }
    copy.answered = answered;
    take(copy, context);
  }
  busy.store(false, std::memory_order_release);
  return true;
}

}  // namespace tessera
