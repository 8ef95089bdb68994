// No thread that computes is ever interrupted by a signal: its stack may be borrowed just then.
#include <gtest/gtest.h>

#include <cinttypes>

#include "backends/cpu/kernels/isa.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kEnding[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT};

constexpr uint64_t bit(int signal) { return uint64_t{1} << (signal - 1); }

// A field of /proc/.../status that is a set of signals.
uint64_t signals_of(const std::string& status, const std::string& field) {
  size_t at = status.find(field + ":\t");
  return at == std::string::npos
             ? 0
             : std::stoull(status.substr(at + field.size() + 2, 16), nullptr, 16);
}

class SignalThreads : public ProgramTest {
 protected:
  static Words f32(const Words& more) { return train(Words{"--bf16", "0"} + more); }

  // Looks at every thread of a process. Returns how many there are.
  int check_threads(pid_t process) {
    uint64_t ending = 0, caught = 0;
    for (int signal : kEnding) ending |= bit(signal);
    int threads = 0, takers = 0;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(cat("/proc/", process, "/task"), gone)) {
      std::string status;
      try {
        status = read_file(entry.path() / "status");
      } catch (const UserError&) {
        continue;  // it has ended
      }
      if (status.find("\nThreads:\t0\n") != std::string::npos) continue;  // it is ending
      ++threads;
      bool takes = (signals_of(status, "SigBlk") & ending) != ending;
      takers += takes;
      EXPECT_FALSE(takes && entry.path().filename() == cat(process)) << "the main thread computes";
      caught |= signals_of(status, "SigCgt");
    }
    EXPECT_LE(takers, 1) << "only the thread that waits for signals may take them";
    // Those of the C library and of sanitizers aside.
    uint64_t apart = ~uint64_t{0} << 31;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) apart |= bit(signal);
    EXPECT_EQ(caught & ~apart, 0u) << "a handler would run on whatever thread there is";
    return threads;
  }

  static std::vector<pid_t> children(pid_t process) {
    std::vector<pid_t> found;
    std::string text = read_file(cat("/proc/", process, "/task/", process, "/children"));
    for (std::string_view word : split(trim(text), ' '))
      found.push_back(std::stoi(std::string(word)));
    return found;
  }
};

// Thousands of signals while products are computed, with code of every instruction set.
TEST_F(SignalThreads, AStormChangesNothing) {
  for (cpu::Isa isa : cpu::kIsas) {
    if (isa > cpu::detect_isa()) continue;
    SCOPED_TRACE(name(isa));
    std::string set(name(isa));
    Words job =
        f32({"--cpu_isa", set, "--threads", "3", "--hidden_width", "64", "--intermediate_size",
             "256", "--max_context_width", "64", "--lr", "0.001", "--gradient_accumulation_steps",
             "20", "--epochs", "1000", "--peak_tflops_per_gpu", "1"});
    fs::remove(path(".err"));  // of the last one
    pid_t child = start(job + Words{"--max_steps", "1000", "--checkpoint_dir", set,
                                    "--metrics_file", set + ".metrics"});
    wait_for(".err", "Training on");
    EXPECT_GE(check_threads(child), 4);
    for (int i = 0; i < 5000; ++i) {
      ::kill(child, kEnding[i % 4]);
      if (i % 500 == 0) check_threads(child);
    }
    ProgramResult result = finish(child);
    EXPECT_EQ(result.status, 143) << result.err;
    expect_contains(result.err, "; saved.");
    Words stormy = losses(set + ".metrics");
    ProgramResult calm = run(job + Words{"--max_steps", cat(stormy.size()), "--run_validation", "0",
                                         "--metrics_file", set + ".calm"});
    EXPECT_EQ(calm.status, 0);
    EXPECT_EQ(losses(set + ".calm"), stormy);
  }
}

TEST_F(SignalThreads, ThoseOfRanksToo) {
  for (const char* transport : {"gloo", "shared_memory"}) {
    Words job = f32({"--threads", "2", "--epochs", "1000000", "--max_steps", "1000000",
                     "--distributed_backend", transport, "--peak_tflops_per_gpu", "1",
                     "--metrics_file", transport});
    pid_t agent = start(Words{"run", "--standalone", "--nproc_per_node", "2"} + job);
    wait_for(transport, "\"batch\":3,");
    std::vector<int> threads;
    for (pid_t rank : children(agent)) {
      if (read_file(cat("/proc/", rank, "/comm")) == "tessera\n")
        threads.push_back(check_threads(rank));
    }
    EXPECT_EQ(threads.size(), 2u);
    for (int count : threads) EXPECT_GE(count, 4);
    ::kill(agent, SIGUSR1);
    EXPECT_EQ(finish(agent).status, 143);
  }
}

TEST_F(SignalThreads, ThoseOfOtherCommandsToo) {
  ASSERT_EQ(run(f32({"--max_steps", "1", "--checkpoint_dir", "ckpt"})).status, 0);
  // It waits with its first word: the pipe is full.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  while (::write(ends[1], "x", 1) == 1) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  pid_t child =
      start({"generate", "ckpt", "--prompt", "the", "--threads", "3"}, [&] { ::dup2(ends[1], 1); });
  auto threads = [&] {
    return std::distance(fs::directory_iterator(cat("/proc/", child, "/task")), {});
  };
  for (int i = 0; i < 30'000 && threads() < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(check_threads(child), 4);
  ::kill(child, SIGTERM);
  EXPECT_EQ(finish(child).status, 128 + SIGTERM);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(SignalThreads, TheReaderOfATextMayLeave) {
  ASSERT_EQ(run(f32({"--max_steps", "1", "--checkpoint_dir", "ckpt"})).status, 0);
  Words words{"generate", "ckpt", "--prompt", "the", "--max_new_tokens", "1000000"};
  ProgramResult result = run(words, [] {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(126);
    ::close(ends[0]);
    ::dup2(ends[1], 1);
  });
  EXPECT_EQ(result.status, 128 + SIGPIPE) << result.err;
  result = run({"generate", "ckpt", "--prompt", "the", "--max_new_tokens", "4"},
               [] { ::dup2(::open("/dev/full", O_WRONLY), 1); });
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "cannot write to standard output: No space left on device");
  EXPECT_EQ(run({"version"}, [] { ::dup2(::open("/dev/full", O_WRONLY), 1); }).status, 1);
}

}  // namespace
}  // namespace tessera
