// Saves that end badly: the process killed, the disk full. What was complete stays complete.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = 20'000;

fs::path save_filled(const fs::path& directory, int64_t step, int64_t num_kept) {
  std::vector<int64_t> state(kElements, step);
  std::vector<StateBox> boxes = {
      {"state", TensorRole::kOther, DType::kI64, {kElements}, {{0}, {kElements}}, state.data()}};
  std::vector<AttachedFile> attached = {{"a", cat(step)}, {"b", std::string(10'000, 'b')}};
  return save_boxes(directory, "llama", step, boxes, cat("{\"step\": ", step, "}"), num_kept, {},
                    attached);
}

// Step of the newest complete checkpoint after checking all of its content; -1 if there is none.
int64_t newest_verified_step(const fs::path& directory) {
  auto path = newest_complete_checkpoint(directory);
  if (!path) return -1;
  CheckpointReader reader(*path);
  std::vector<int64_t> state(kElements);
  std::vector<StateTarget> targets = {
      {"state", DType::kI64, {kElements}, {{0}, {kElements}}, into(state.data())}};
  reader.verify(targets);
  reader.load_all(targets);
  EXPECT_EQ(state, std::vector<int64_t>(kElements, state[0]));
  EXPECT_EQ(reader.run_json(), cat("{\"step\": ", state[0], "}"));
  EXPECT_EQ(read_file(*path / "tokenizer/a"), cat(state[0]));
  return state[0];
}

pid_t start_child(const std::function<void()>& action) {
  pid_t child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// From here on no file of this process grows beyond `bytes`.
void limit_file_size(rlim_t bytes) {
  rlimit limit{bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

// A number that a process and its children share.
class SharedCount {
 public:
  SharedCount()
      : count_(static_cast<std::atomic<int64_t>*>(::mmap(
            nullptr, sizeof *count_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedCount() { ::munmap(count_, sizeof *count_); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  void add_one() { ++*count_; }
  int64_t value() const { return *count_; }

 private:
  std::atomic<int64_t>* count_;
};

// The moments lie behind a number of saves, not at a time: on a slow disk no save would finish.
TEST(Crash, KilledAtRandomMomentsTheNewestCompleteOneVerifies) {
  ScratchDirectory scratch;
  std::mt19937 random(11);
  SharedCount saves;
  int64_t newest = 0;
  save_filled(scratch.path(), newest, 2);
  for (int trial = 0; trial < 60; ++trial) {
    pid_t child = start_child([&] {
      for (int64_t step = newest + 1;; ++step) {
        save_filled(scratch.path(), step, 2);
        saves.add_one();
        save_filled(scratch.path(), step, 2);  // and once more over itself
        saves.add_one();
      }
    });
    int64_t until = saves.value() + std::uniform_int_distribution<int64_t>(0, 4)(random);
    while (saves.value() < until) ::usleep(200);
    timespec pause{0, std::uniform_int_distribution<long>(0, 10'000'000)(random)};
    ::nanosleep(&pause, nullptr);
    ::kill(child, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(wait_for(child)));
    int64_t found = newest_verified_step(scratch.path());
    ASSERT_GE(found, newest) << "trial " << trial;
    newest = found;
  }
  EXPECT_GT(newest, 30);
  save_filled(scratch.path(), newest + 1, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1)
      << "something was left behind";
}

// The signal that a file past its limit raises ends the process after exactly so many bytes.
TEST(Crash, KilledAtAnyByteTheOldOneVerifies) {
  ScratchDirectory scratch;
  save_filled(scratch.path(), 1, 2);
  const auto size = static_cast<rlim_t>(fs::file_size(scratch / "llama-1steps/state.safetensors"));
  for (rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{8}, rlim_t{9}, rlim_t{100}, rlim_t{150},
                       rlim_t{4096}, size / 2, size - 1}) {
    pid_t child = start_child([&] {
      rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::signal(SIGXFSZ, SIG_DFL);
      limit_file_size(bytes);
      save_filled(scratch.path(), 1, 2);
      save_filled(scratch.path(), 2, 2);
    });
    EXPECT_TRUE(WIFSIGNALED(wait_for(child))) << bytes;
    EXPECT_EQ(newest_verified_step(scratch.path()), 1) << bytes;
  }
  save_filled(scratch.path(), 2, 1);
  EXPECT_EQ(newest_verified_step(scratch.path()), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
}

TEST(Crash, AFullDiskIsAnErrorAndLeavesTheOldOne) {
  ScratchDirectory scratch;
  save_filled(scratch.path(), 1, 1);
  const auto size = static_cast<rlim_t>(fs::file_size(scratch / "llama-1steps/state.safetensors"));
  for (rlim_t bytes : {rlim_t{0}, rlim_t{5}, rlim_t{60}, size - 1}) {
    for (int64_t step : {1, 2}) {
      pid_t child = start_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        limit_file_size(bytes);
        std::string message = user_error([&] { save_filled(scratch.path(), step, 1); });
        bool told = message.find(cat("llama-", step, "steps.tmp-")) != std::string::npos &&
                    message.find(std::strerror(EFBIG)) != std::string::npos;
        if (!told) throw InternalError(message);
      });
      EXPECT_EQ(wait_for(child), 0) << "the error did not name path and cause";
      EXPECT_EQ(newest_verified_step(scratch.path()), 1);
      EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1)
          << "a half-written checkpoint was left";
    }
  }
}

}  // namespace
}  // namespace tessera
