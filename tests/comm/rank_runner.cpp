#include "tests/comm/rank_runner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "comm/connect.h"
#include "comm/tcp_store.h"
#include "tests/comm/thread_channels.h"

namespace tessera {
namespace {

// A rank that hangs all the same must not outlive the test.
constexpr unsigned kProcessSeconds = 60;
constexpr double kMeetingSeconds = 50;
constexpr const char* kToken = "a token of the test";

std::string error_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const std::exception& error) {
    return *error.what() ? error.what() : "an error without words";
  }
}

std::vector<RankResult> run_threads(const RankJob& job,
                                    const std::function<void(Channels&)>& body) {
  auto hub = std::make_shared<ThreadHub>(job.world, job.way == Way::kStagedThreads
                                                        ? ThreadHub::Access::kStaged
                                                        : ThreadHub::Access::kDirect);
  std::vector<RankResult> results(static_cast<size_t>(job.world));
  std::vector<std::thread> threads;
  const MeetingPoint begun(job.world);
  double start = monotonic_seconds();
  for (int rank = 0; rank < job.world; ++rank) {
    threads.emplace_back([&, rank] {
      RankResult& result = results[static_cast<size_t>(rank)];
      result.error = error_of([&] {
        Channels channels = thread_channels(hub, rank, {job.deadline});
        begun.arrive_and_wait();
        body(channels);
      });
      result.seconds = monotonic_seconds() - start;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

JobMember member_of(const RankJob& job, int rank) {
  JobMember member;
  member.rank = member.local_rank = rank;
  member.world_size = member.local_world_size = job.world;
  member.token = kToken;
  // Hosts alternate: sums in rank order mix both transports.
  member.host_id = job.way == Way::kMix ? cat("host ", rank % 2) : "host";
  if (job.prepare) job.prepare(member);
  return member;
}

Transport transport_of(Way way) {
  return way == Way::kGloo           ? Transport::kGloo
         : way == Way::kSharedMemory ? Transport::kSharedMemory
                                     : Transport::kAuto;
}

[[noreturn]] void run_child(const RankJob& job, int rank, const MeetingPoint& begun, int ports,
                            int result, const std::function<void(Channels&)>& body) {
  ::alarm(kProcessSeconds);
  std::string error = error_of([&] {
    int store_port = 0;
    require(::read(ports, &store_port, sizeof store_port) == sizeof store_port,
            "port of the store");
    auto store = std::make_shared<TcpStore>(Endpoint{"127.0.0.1", store_port}, kToken,
                                            std::chrono::seconds(kProcessSeconds));
    begun.arrive_and_wait();
    Channels channels =
        connect(member_of(job, rank), std::move(store), {job.deadline}, transport_of(job.way));
    body(channels);
  });
  [[maybe_unused]] ssize_t written = ::write(result, error.data(), error.size());
  ::_exit(0);
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  bool running = false;
};

// Waits until no child runs; a stopped one does not count.
void wait_for_children(std::vector<Child>& children, std::vector<RankResult>& results,
                       double start) {
  auto running = [&] {
    return std::any_of(children.begin(), children.end(), [](auto& c) { return c.running; });
  };
  while (running()) {
    for (size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      if (!children[rank].running ||
          ::waitpid(children[rank].pid, &status, WNOHANG | WUNTRACED) != children[rank].pid)
        continue;
      children[rank].running = false;
      results[rank].seconds = monotonic_seconds() - start;
      if (WIFSIGNALED(status)) results[rank].signal = WTERMSIG(status);
      if (WIFSTOPPED(status)) results[rank].signal = WSTOPSIG(status);
    }
    ::usleep(1000);
  }
}

std::vector<RankResult> run_processes(const RankJob& job,
                                      const std::function<void(Channels&)>& body) {
  std::vector<Child> children(static_cast<size_t>(job.world));
  std::vector<RankResult> results(children.size());
  const MeetingPoint begun(job.world - static_cast<int>(job.absent.size()));
  int ports[2];
  require(::pipe2(ports, O_CLOEXEC) == 0, "pipe");
  double start = monotonic_seconds();
  for (int rank = 0; rank < job.world; ++rank) {
    if (std::count(job.absent.begin(), job.absent.end(), rank)) continue;
    Child& child = children[static_cast<size_t>(rank)];
    int ends[2];
    require(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
    child.pid = ::fork();
    require(child.pid >= 0, "fork");
    if (child.pid == 0) run_child(job, rank, begun, ports[0], ends[1], body);
    ::close(ends[1]);
    child.pipe = ends[0];
    child.running = true;
  }
  // Behind all forks: a child could find a lock that the thread of the store holds, as that of the
  // memory allocator under AddressSanitizer.
  const TcpStoreServer store(kToken);
  for (int rank = 0; rank < job.world; ++rank) {
    const int port = store.port();
    require(::write(ports[1], &port, sizeof port) == sizeof port, "port of the store");
  }
  wait_for_children(children, results, start);
  ::close(ports[0]);
  ::close(ports[1]);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (children[rank].pid < 0) continue;
    if (results[rank].signal == SIGSTOP) {
      ::kill(children[rank].pid, SIGKILL);
      ::waitpid(children[rank].pid, nullptr, 0);
    }
    char buffer[4096];
    ssize_t size;
    while ((size = ::read(children[rank].pipe, buffer, sizeof buffer)) > 0)
      results[rank].error.append(buffer, static_cast<size_t>(size));
    ::close(children[rank].pipe);
  }
  return results;
}

}  // namespace

MeetingPoint::MeetingPoint(int ranks) : ranks_(ranks) {
  void* memory =
      ::mmap(nullptr, sizeof *arrived_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap");
  arrived_ = static_cast<int*>(memory);
}

MeetingPoint::~MeetingPoint() { ::munmap(arrived_, sizeof *arrived_); }

void MeetingPoint::wait() const {
  for (const double end = monotonic_seconds() + kMeetingSeconds;
       std::atomic_ref<int>(*arrived_) < ranks_;) {
    require(monotonic_seconds() < end, "not all ranks have come");
    ::usleep(1000);
  }
}

std::string name(Way way) {
  constexpr const char* kNames[] = {"Threads", "StagedThreads", "SharedMemory", "Gloo", "Mix"};
  return kNames[static_cast<int>(way)];
}

std::vector<RankResult> run_ranks(const RankJob& job, const std::function<void(Channels&)>& body) {
  return is_processes(job.way) ? run_processes(job, body) : run_threads(job, body);
}

std::vector<RankResult> run_ranks(const RankJob& job,
                                  const std::function<void(Communicator&)>& body) {
  return run_ranks(job, std::function<void(Channels&)>(
                            [&](Channels& channels) { body(*channels.communicator); }));
}

void sum_of_ones(Communicator& communicator, std::string_view label) {
  int32_t one = 1, all = 0;
  communicator.run({.action = CommAction::kAllReduce,
                    .group = &communicator.world(),
                    .dtype = DType::kI32,
                    .output_dtype = DType::kI32,
                    .inner = 1,
                    .input = &one,
                    .output = &all,
                    .label = label});
  require(all == communicator.world_size(), "the sum of ones");
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace tessera
