#include "checkpoint/directory_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/process_identity.h"
#include "checkpoint/directory.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

const std::string kJob = "00112233445566778899aabbccddeeff";
const std::string kOtherJob = "ffeeddccbbaa99887766554433221100";
// Longer than any test: what does not wait for a silence does not wait.
constexpr DirectoryLock::Timing kPatient{milliseconds(5), std::chrono::hours(1)};

class Lock : public testing::Test {
 protected:
  fs::path directory() const { return scratch_ / "ckpt"; }
  fs::path file() const { return directory() / kLockName; }

  std::string refusal() const {
    return message_of<DirectoryInUse>([&] { DirectoryLock lock(directory(), {kJob}, kPatient); });
  }
  // Takes the lock and gives it back; the warnings on the way.
  std::string warnings(const DirectoryLock::Holder& holder,
                       DirectoryLock::Timing timing = kPatient) const {
    testing::internal::CaptureStderr();
    DirectoryLock lock(directory(), holder, timing);
    EXPECT_EQ(lock_token(directory()), lock.token());
    return testing::internal::GetCapturedStderr();
  }

  // A lock file as a process elsewhere leaves it, with what `change` says.
  void write_lock(const std::function<void(nlohmann::json&)>& change) const {
    make_directories(directory());
    struct stat status {};
    ASSERT_EQ(::stat(directory().c_str(), &status), 0);
    nlohmann::json json{{"job", kOtherJob},       {"attempt", 0},      {"host", "elsewhere"},
                        {"boot", "another boot"}, {"pid", ::getpid()}, {"device", status.st_dev},
                        {"token", "its token"},   {"flock", true}};
    change(json);
    make_file(file(), json.dump());
  }
  static void leave_as_it_is(nlohmann::json&) {}

  // A process that takes the lock and holds it until it is killed.
  pid_t start_holder() const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_t child = ::fork();
    if (child == 0) {
      DirectoryLock lock(directory(), {kOtherJob}, kPatient);
      (void)!::write(ends[1], "x", 1);
      while (true) ::pause();
    }
    ::close(ends[1]);
    char held;
    EXPECT_EQ(::read(ends[0], &held, 1), 1);
    ::close(ends[0]);
    return child;
  }
  static void kill_and_wait(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  ScratchDirectory scratch_;
};

TEST_F(Lock, IsGivenBackAtTheEnd) {
  {
    DirectoryLock lock(directory(), {kJob}, kPatient);
    EXPECT_EQ(names_in(directory()), Names{"run.lock"});
    EXPECT_NO_THROW(lock.require_held());
  }
  EXPECT_FALSE(fs::exists(directory())) << "made for the lock, and nothing came into it";
  fs::create_directories(directory());
  EXPECT_EQ(warnings({kJob}), "");
  EXPECT_EQ(names_in(directory()), Names{});
}

TEST_F(Lock, IsForOneAtATime) {
  pid_t child = start_holder();
  expect_contains(refusal(), cat("'", directory().string(), "' is in use by process ", child,
                                 " on ", host_name(), " (job ", kOtherJob, ")"));
  EXPECT_EQ(names_in(directory()), Names{"run.lock"}) << "nothing of the refused one is left";
  kill_and_wait(child);
}

TEST_F(Lock, OfAKilledProcessIsTakenOverAtOnce) {
  kill_and_wait(start_holder());
  ASSERT_TRUE(fs::exists(file()));
  expect_contains(warnings({kJob}), "which has ended: this run takes it over");
  EXPECT_EQ(names_in(directory()), Names{});
}

// Its process number is this process's: who holds it counts, not what it is called.
TEST_F(Lock, OfAnotherContainerWithTheSameNumberIsHeld) {
  write_lock([](nlohmann::json& json) { json["boot"] = boot_id(); });
  int fd = ::open(file().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  expect_contains(refusal(), "is in use by process");
  ::close(fd);
  expect_contains(warnings({kJob}), "which has ended");
}

TEST_F(Lock, OfAnotherHostIsTakenOverAfterASilence) {
  write_lock(leave_as_it_is);
  std::string said = warnings({kJob}, {milliseconds(10), milliseconds(100)});
  expect_contains(said, "is locked by process");
  expect_contains(said, "on elsewhere");
  expect_contains(said, "which gives no sign of life: this run takes it over");
}

TEST_F(Lock, WaitingForASilenceEndsWithTheProcess) {
  write_lock(leave_as_it_is);
  request_interruption();
  EXPECT_THROW(DirectoryLock(directory(), {kJob}, kPatient), Interrupted);
  clear_interruption();
  EXPECT_EQ(lock_token(directory()), "its token");
}

TEST_F(Lock, AFileThatLeadsNowhereIsRefused) {
  make_directories(directory());
  fs::create_symlink("nothing", file());
  expect_contains(user_error([&] { DirectoryLock(directory(), {kJob}, kPatient); }),
                  cat("'", file().string(), "' is a link to nothing: remove it"));
}

TEST_F(Lock, OfAnotherHostThatLivesIsHeld) {
  write_lock(leave_as_it_is);
  std::atomic<bool> done = false;
  std::thread beating([&] {
    for (; !done; ::usleep(1000)) ::utimensat(AT_FDCWD, file().c_str(), nullptr, 0);
  });
  expect_contains(refusal(), "is in use by process");
  done = true;
  beating.join();
}

TEST_F(Lock, OfAnEarlierAttemptOfTheJobIsTakenOverAtOnce) {
  write_lock([](nlohmann::json& json) { json["job"] = kJob; });
  expect_contains(warnings({kJob, 1}), "was left by an earlier attempt of this job");
}

TEST_F(Lock, ThatSaysNothingCountsAsWritten) {
  make_directories(directory());
  make_file(file(), "{\"job\": 1");
  expect_contains(warnings({kJob}, {milliseconds(10), milliseconds(100)}), "an unknown process");
}

TEST_F(Lock, ThatWasTakenOverIsNotHeld) {
  DirectoryLock lock(directory(), {kJob}, kPatient);
  fs::remove(file());
  write_lock(leave_as_it_is);
  expect_contains(user_error([&] { lock.require_held(); }), "was taken over by process");
}

TEST_F(Lock, ThatWasDeletedIsMadeAgain) {
  DirectoryLock lock(directory(), {kJob}, kPatient);
  fs::remove_all(directory());
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(lock.require_held());
  expect_contains(testing::internal::GetCapturedStderr(), "was gone, which this run had made");
  EXPECT_EQ(lock_token(directory()), lock.token());
}

// All find the lock of a process that was killed at the same moment.
TEST_F(Lock, OneOfSeveralTakesItOver) {
  constexpr int kProcesses = 4;
  for (int trial = 0; trial < 10; ++trial) {
    kill_and_wait(start_holder());
    int results[2], go_on[2];
    ASSERT_EQ(::pipe(results) + ::pipe(go_on), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(go_on[1]);
      char letter = 'r';
      try {
        DirectoryLock lock(directory(), {kJob}, kPatient);
        (void)!::write(results[1], "w", 1);
        (void)!::read(go_on[0], &letter, 1);  // until the parent closes it
      } catch (const UserError&) {
        (void)!::write(results[1], "r", 1);
      }
      ::_exit(0);
    }
    std::string all(kProcesses, '?');
    for (char& letter : all) ASSERT_EQ(::read(results[0], &letter, 1), 1);
    EXPECT_EQ(std::ranges::count(all, 'w'), 1) << all;
    for (int end : {results[0], results[1], go_on[0], go_on[1]}) ::close(end);
    for (pid_t child : children) ::waitpid(child, nullptr, 0);
  }
}

TEST_F(Lock, IsSeenWithoutBeingTaken) {
  EXPECT_FALSE(find_lock(directory()));
  write_lock(leave_as_it_is);
  EXPECT_EQ(find_lock(directory()).value().holder,
            cat("process ", ::getpid(), " on elsewhere (job ", kOtherJob, ")"));
  fs::last_write_time(file(), fs::file_time_type::clock::now() - std::chrono::seconds(1000));
  EXPECT_GE(find_lock(directory()).value().untouched, 1000);
  fs::last_write_time(file(), fs::file_time_type::clock::now() + std::chrono::hours(10));
  EXPECT_EQ(find_lock(directory()).value().untouched, 0);  // by another clock
  make_file(file(), "");
  EXPECT_EQ(find_lock(directory()).value().holder, "an unknown process");
}

TEST_F(Lock, ItsHolderRemovesWhatOthersLeft) {
  std::string elsewhere = cat("llama-9steps.tmp-", ::getpid(), ".1.0123456789abcdef.77");
  fs::create_directories(directory() / elsewhere);
  make_file(directory() / elsewhere / "run.json");
  remove_leftovers(directory());
  EXPECT_EQ(names_in(directory()), Names{elsewhere}) << "it may be in use in another container";
  const pid_t killed = start_holder();
  kill_and_wait(killed);
  make_file(directory() / cat("run.lock.tmp-", killed));  // between two steps of a take-over
  const std::string living = cat("run.lock.tmp-", ::getppid());
  make_file(directory() / living);
  warnings({kJob});
  EXPECT_EQ(names_in(directory()), Names{living});
}

// Two processes that are number 1, each in its own container, save side by side.
TEST(EqualNumbers, EverySavedCheckpointIsWhole) {
  ScratchDirectory scratch;
  std::vector<pid_t> children;
  for (int64_t first : {1, 2}) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    pid_t one = ::fork();
    if (one == 0) {
      try {
        for (int64_t step = first; step < 100; step += 2) save(scratch.path(), step);
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(::getpid() == 1 ? 0 : 2);
    }
    int status = 0;
    ::waitpid(one, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  std::vector<int> statuses;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(WEXITSTATUS(status));
  }
  if (statuses[0] == 77) GTEST_SKIP() << "no process namespaces here";
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
  for (int64_t step = 1; step < 100; ++step)
    EXPECT_NO_THROW(CheckpointReader(scratch / cat("llama-", step, "steps"))) << step;
  EXPECT_EQ(names_in(scratch.path()).size(), 99u);
}

}  // namespace
}  // namespace tessera
