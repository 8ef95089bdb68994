#include "apps/bench_comm.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "apps/job_connection.h"
#include "base/clock.h"
#include "base/cryptography.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/worker_process.h"

namespace tessera {
namespace {

constexpr int64_t kSmallest = 4 << 10, kLargest = 64 << 20;
// Calls of one measurement: short ones are repeated until so many bytes have moved.
constexpr int64_t kBytesPerMeasurement = 4 << 20;
constexpr int64_t kMostCalls = 50;

// Whole numbers, small enough that every sum is exact in f32.
float number(int rank, int64_t e) { return static_cast<float>(rank + 1 + e % 7); }

template <class T>
void fill(std::byte* data, int64_t n, int rank) {
  for (int64_t e = 0; e < n; ++e) reinterpret_cast<T*>(data)[e] = T(number(rank, e));
}

class CommBench {
 public:
  CommBench(const Channels& channels, int64_t repeats)
      : control_(*channels.control),
        communicator_(*channels.communicator),
        repeats_(repeats),
        input_(communicator_.allocate(kLargest)),
        output_(communicator_.allocate(kLargest)) {}

  // Whether all results were right.
  bool run() {
    print("%-15s %-5s %12s %12s %10s %10s  %s\n", "operation", "dtype", "bytes", "us", "algbw GB/s",
          "busbw GB/s", "check");
    bool good = true;
    for (int64_t size = kSmallest; size <= kLargest; size *= 4) {
      time_memcpy(size);
      for (CommAction action :
           {CommAction::kAllGather, CommAction::kReduceScatter, CommAction::kAllReduce})
        for (DType dtype : {DType::kF32, DType::kBF16})
          good &= time_collective(action, dtype, size);
    }
    return good;
  }

 private:
  template <class... T>
  void print(const char* pattern, const T&... values) const {
    if (communicator_.rank() == 0) std::printf(pattern, values...);
  }

  // Median seconds of one call.
  double time(int64_t size, const std::function<void()>& call) {
    int64_t calls = std::clamp<int64_t>(kBytesPerMeasurement / size, 1, kMostCalls);
    std::vector<double> seconds;
    for (int64_t i = 0; i <= repeats_; ++i) {
      control_.barrier("bench");
      double start = monotonic_seconds();
      for (int64_t k = 0; k < calls; ++k) call();
      if (i > 0) seconds.push_back((monotonic_seconds() - start) / static_cast<double>(calls));
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats_ / 2, seconds.end());
    return seconds[static_cast<size_t>(repeats_ / 2)];
  }

  // Every rank copies at the same time: what a gather could be at best.
  void time_memcpy(int64_t size) {
    double seconds =
        time(size, [&] { std::memcpy(output_.data(), input_.data(), static_cast<size_t>(size)); });
    print("%-15s %-5s %12lld %12.1f %10.2f\n", "memcpy", "", static_cast<long long>(size),
          seconds * 1e6, static_cast<double>(size) / seconds / 1e9);
  }

  bool time_collective(CommAction action, DType dtype, int64_t size) {
    int n = communicator_.world_size();
    bool in_parts = action != CommAction::kAllReduce;
    int64_t elements = size / size_of(dtype);
    CommCall call{.action = action,
                  .group = &communicator_.world(),
                  .dtype = dtype,
                  .output_dtype = dtype,
                  .inner = in_parts ? elements / n : elements,
                  .input = input_.data(),
                  .output = output_.data(),
                  .label = "bench comm"};
    (dtype == DType::kF32 ? fill<float> : fill<BF16>)(input_.data(), call.input_elements(),
                                                      communicator_.rank());
    double seconds = time(size, [&] { communicator_.run(call); });
    bool wrong = dtype == DType::kF32 ? is_wrong<float>(call) : is_wrong<BF16>(call);
    bool good = !control_.any("check", wrong);
    double bandwidth = static_cast<double>(size) / seconds / 1e9;
    double share = static_cast<double>(n - 1) / n * (in_parts ? 1 : 2);
    print("%-15s %-5s %12lld %12.1f %10.2f %10.2f  %s\n", std::string(name(action)).c_str(),
          std::string(name(dtype)).c_str(), static_cast<long long>(size), seconds * 1e6, bandwidth,
          bandwidth * share, good ? "ok" : "WRONG");
    std::fflush(stdout);
    return good;
  }

  template <class T>
  bool is_wrong(const CommCall& call) const {
    const T* output = reinterpret_cast<const T*>(output_.data());
    int n = communicator_.world_size(), rank = communicator_.rank();
    for (int64_t e = 0; e < call.output_elements(); ++e) {
      float expected = 0;
      if (call.action == CommAction::kAllGather) {
        expected = number(static_cast<int>(e / call.inner), e % call.inner);
      } else {
        bool part = call.action == CommAction::kReduceScatter;
        for (int r = 0; r < n; ++r) expected += number(r, part ? rank * call.inner + e : e);
      }
      if (static_cast<float>(output[e]) != static_cast<float>(T(expected))) return true;
    }
    return false;
  }

  Control& control_;
  Communicator& communicator_;
  int64_t repeats_;
  HostBuffer input_, output_;
};

// A job on this host, with this process as its agent.
int run_ranks(const RunConfig& config, std::span<const std::string> arguments) {
  std::string token = hex(secret_random_bytes(32)), size = cat(config.ranks);
  TcpStoreServer store(token);
  std::vector<std::string> words{"tessera", "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < config.ranks; ++rank) {
    ranks.push_back(start_own_program(words, {{"RANK", cat(rank)},
                                              {"WORLD_SIZE", size},
                                              {"LOCAL_RANK", cat(rank)},
                                              {"LOCAL_WORLD_SIZE", size},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", cat(store.port())},
                                              {"TESSERA_JOB_TOKEN", token},
                                              {"TESSERA_AGENT_STORE", "1"}}));
  }
  int result = 0;
  for (pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) result = 1;
  }
  return result;
}

}  // namespace

int bench_comm(const RunConfig& config, std::span<const std::string> arguments) {
  JobConnection job = join_job(config);
  if (!job.member) return run_ranks(config, arguments);
  if (!job.channels.communicator)
    throw UsageError("bench comm measures between ranks: this job has one");
  if (job.member->rank == 0) {
    std::printf("%d ranks, %d on this host with %ld cores, %s\n", job.member->world_size,
                job.member->local_world_size, ::sysconf(_SC_NPROCESSORS_ONLN),
                config.distributed_backend.c_str());
    std::fflush(stdout);
  }
  return CommBench(job.channels, config.repeats).run() ? 0 : 1;
}

}  // namespace tessera
