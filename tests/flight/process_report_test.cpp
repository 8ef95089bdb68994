// Reports of processes that go on, and of such that crash.
#include "flight/process_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/interruption.h"
#include "base/save_request.h"
#include "base/thread_stacks.h"
#include "flight/flight_recorder.h"
#include "flight/postmortem.h"
#include "tests/base/child_process.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

// Takes part from its construction on, and never ends.
struct OtherThread {
  OtherThread() {
    std::atomic<bool> ready = false;
    std::thread([&ready] {
      ShowsStack shows("other");
      ready = true;
      while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
    }).detach();
    while (!ready) std::this_thread::yield();
  }
};

class ProcessReport : public testing::Test {
 protected:
  // In a child, which has signal handlers of its own: its exit status.
  template <class Work>
  int in_child(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int err = ::open((directory_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(err, 2);
      FlightRecorder flight({.directory = directory_.path(), .rank = 3, .world_size = 4});
      ShowsStack shows("main");
      flight.begin_step(5);
      flight.doing("validating");
      report_to(&flight);
      work();
      report_to(nullptr);
      ::_exit(0);
    }
    return wait_for_end(child, "child");
  }
  std::string report() const { return read_file(report_path(directory_.path(), 3)); }
  RankFlight ring() const { return read_flights(directory_.path()).ranks.at(0); }

  ScratchDirectory directory_;
};

TEST_F(ProcessReport, SaysWhyAndWhereAndGoesOn) {
  EXPECT_EQ(in_child([] {
              const OtherThread one, two;
              write_process_report("by hand");
              if (write_process_report("again").empty()) ::_exit(9);
            }),
            0);
  expect_contains(report(), "== report of rank 3 of 4, process ");
  expect_contains(report(), "reason: by hand\nstep 5, begun ");
  expect_contains(report(), "reason: again\n");
  expect_contains(report(), "doing: validating\n");
  if (has_sanitizer()) return;
  const NativeReport last = read_report(report());
  ASSERT_EQ(last.stacks.size(), 3u);
  EXPECT_TRUE(last.stacks[0].thread.ends_with(" 'main'")) << last.stacks[0].thread;
  for (const NativeStack& stack : last.stacks) {
    expect_lacks(stack.thread, "did not answer");
    EXPECT_GT(stack.frames.size(), 1u);
  }
}

TEST_F(ProcessReport, IsNoneWithoutARecorder) { EXPECT_EQ(write_process_report("nobody"), ""); }

struct Crash {
  int signal;
  bool is_sent;
};
class Crashes : public ProcessReport, public testing::WithParamInterface<Crash> {};
INSTANTIATE_TEST_SUITE_P(Each, Crashes,
                         testing::Values(Crash{SIGSEGV, false}, Crash{SIGSEGV, true},
                                         Crash{SIGBUS, true}, Crash{SIGFPE, true},
                                         Crash{SIGILL, true}, Crash{SIGABRT, false}),
                         [](const auto& test) {
                           return cat(::sigabbrev_np(test.param.signal),
                                      test.param.is_sent ? "Sent" : "");
                         });

TEST_P(Crashes, LeaveAReportAndDieOfTheSignal) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer has the handlers";
  const auto [signal, is_sent] = GetParam();
  const int status = in_child([&] {
    const OtherThread other;
    if (is_sent) ::kill(::getpid(), signal);
    if (signal == SIGABRT) std::abort();
    void* nothing = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile int*>(nothing) = 1;
  });
  EXPECT_EQ(status, 128 + signal);
  const std::string name = cat(::sigdescr_np(signal), " (SIG", ::sigabbrev_np(signal), ")");
  expect_contains(report(), cat("reason: ", name));
  expect_contains(report(), "step 5, begun ");
  EXPECT_EQ(read_report(report()).stacks.size(), 2u);
  const std::string said = read_file(directory_ / "err");
  expect_contains(said, cat("tessera: rank 3: ", name));
  expect_contains(said, cat("; report: ", report_path(directory_.path(), 3).string(), "\n"));
  if (!is_sent && signal == SIGSEGV) expect_contains(said, " at address 0x");
  EXPECT_EQ(ring().end, RingEnd::kSignal);
  EXPECT_EQ(ring().signal, signal);
  EXPECT_EQ(ring().end_text, name);
}

TEST_F(ProcessReport, AThreadWithoutAnAlternateStackMayCrashToo) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer has the handlers";
  EXPECT_EQ(in_child([] { std::thread([] { ::raise(SIGSEGV); }).join(); }), 128 + SIGSEGV);
  expect_contains(report(), "reason: Segmentation fault (SIGSEGV)");
}

TEST_F(ProcessReport, AnOverflowOfTheStackIsReportedAndNamed) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer has the handlers";
  struct Deep {
    static int fall(int n) {
      volatile char page[4096] = {};
      page[n % 4096] = 1;
      return n < 1'000'000'000 ? fall(n + 1) + page[0] : n;
    }
  };
  EXPECT_EQ(in_child([] { ::_exit(Deep::fall(0)); }), 128 + SIGSEGV);
  expect_contains(report(), "reason: Segmentation fault (SIGSEGV)");
}

TEST_F(ProcessReport, SIGUSR2AsksForOneAndEndsNothing) {
  EXPECT_EQ(in_child([this] {
              take_signals();
              ::kill(::getpid(), SIGUSR2);
              for (int i = 0; i < 100'000; ++i) {
                if (std::filesystem::exists(report_path(directory_.path(), 3))) break;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
            }),
            0);
  expect_contains(report(), "reason: SIGUSR2\n");
  expect_contains(read_file(directory_ / "err"), "tessera: rank 3: report written: ");
}

TEST_F(ProcessReport, ARequestToSaveIsNoneForAReport) {
  EXPECT_EQ(in_child([this] {
              take_signals();
              send_save_request(::getpid());
              for (int i = 0; i < 100'000 && !take_save_request(); ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              const bool again = take_save_request();
              if (again || std::filesystem::exists(report_path(directory_.path(), 3))) ::_exit(1);
            }),
            0);
}

}  // namespace
}  // namespace tessera
