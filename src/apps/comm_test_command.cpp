#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/job_connection.h"
#include "apps/own_options.h"
#include "base/clock.h"
#include "base/cryptography.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/worker_process.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera comm-test [OPTIONS]

Measures the collectives of training between the ranks of a job, checks every result, and prints the columns of nccl-tests:
size is the larger of input and output, algbw = size / time, busbw = algbw (n - 1) / n, twice that for all_reduce.
Started by itself it makes --ranks processes on this host.

Examples
  tessera comm-test --ranks 4 --collective all_reduce
  tessera run --nnodes 2 --nproc_per_node 8 --rdzv_endpoint node1:29500 comm-test --maxbytes 1G
  srun --nodes 4 --ntasks-per-node 8 tessera comm-test --distributed_backend gloo

Options
)";

struct CommTest {
  int64_t ranks = 2, smallest = 4 << 10, largest = 64 << 20, factor = 4;
  int64_t calls = 20, warm_up_calls = 5;
  std::vector<CommAction> collectives{CommAction::kAllGather, CommAction::kReduceScatter,
                                      CommAction::kAllReduce};
  DType dtype = DType::kF32;
  std::string backend = "auto";
  double timeout = 300;
};

std::vector<CommAction> collectives_of(const std::string& text) {
  std::vector<CommAction> found;
  for (std::string_view word : split(text, ',')) {
    for (CommAction action : CommTest().collectives)
      if (name(action) == word) found.push_back(action);
    if (found.empty() || name(found.back()) != word)
      throw UsageError(
          cat("--collective takes all_gather, reduce_scatter, all_reduce, or several "
              "with commas between them: it has '",
              word, "'"));
  }
  return found;
}

using Text = const std::string&;

constexpr CommandOption<CommTest> kOptions[] = {
    {"collective", "o", "NAMES", "all_gather,reduce_scatter,all_reduce (default: all of them)",
     [](CommTest& o, Text v, Text) { o.collectives = collectives_of(v); }},
    {"minbytes", "b", "BYTES", "smallest size, default 4K",
     [](CommTest& o, Text v, Text s) { o.smallest = byte_count(v, 8, s); }},
    {"maxbytes", "e", "BYTES", "largest size, default 64M",
     [](CommTest& o, Text v, Text s) { o.largest = byte_count(v, 8, s); }},
    {"stepfactor", "f", "N", "from one size to the next, default 4",
     [](CommTest& o, Text v, Text s) { o.factor = number<int64_t>(v, 2, kNoMaximum, s); }},
    {"iters", "n", "N", "calls that are timed at each size, default 20",
     [](CommTest& o, Text v, Text s) { o.calls = number<int64_t>(v, 1, kNoMaximum, s); }},
    {"warmup_iters", "w", "N", "calls before them, default 5",
     [](CommTest& o, Text v, Text s) { o.warm_up_calls = number<int64_t>(v, 0, kNoMaximum, s); }},
    {"datatype", "d", "TYPE", "float or bfloat16, default float",
     [](CommTest& o, Text v, Text s) {
       o.dtype = one_of({"float", "bfloat16"}, v, s) == "float" ? DType::kF32 : DType::kBF16;
     }},
    {"ranks", "", "N", "processes, where this one belongs to no job, default 2",
     [](CommTest& o, Text v, Text s) { o.ranks = number<int64_t>(v, 2, kNoMaximum, s); }},
    {"distributed_backend", "", "NAME", "auto, shared_memory or gloo, default auto",
     [](CommTest& o, Text v, Text s) {
       o.backend = one_of({"auto", "shared_memory", "gloo"}, v, s);
     }},
    {"comm_timeout", "", "SECONDS", "a call that takes longer has failed, default 300",
     [](CommTest& o, Text v, Text s) { o.timeout = seconds(v, s); }},
};

// Whole numbers that bf16 holds too, small enough that every sum is exact in f32.
float number(int rank, int64_t e) { return static_cast<float>(rank % 128 + 1 + e % 7); }

template <class T>
void fill(std::byte* data, int64_t n, int rank) {
  for (int64_t e = 0; e < n; ++e) reinterpret_cast<T*>(data)[e] = T(number(rank, e));
}

class Measurement {
 public:
  Measurement(const Channels& channels, const CommTest& test)
      : control_(*channels.control),
        communicator_(*channels.communicator),
        test_(test),
        input_(communicator_.allocate(test.largest)),
        output_(communicator_.allocate(test.largest)) {}

  // Whether all results were right.
  bool run() {
    for (CommAction action : test_.collectives) run(action);
    print("# Out of bounds values : %lld %s\n", static_cast<long long>(wrong_),
          wrong_ == 0 ? "OK" : "FAILED");
    print("# Avg bus bandwidth    : %g\n#\n", bandwidths_ / std::max(1, measured_));
    return wrong_ == 0;
  }

 private:
  struct Result {
    double seconds = 0;
    int64_t wrong = 0;  // elements, of all ranks
  };

  template <class... T>
  void print(const char* pattern, const T&... values) const {
    if (communicator_.rank() == 0) std::printf(pattern, values...);
  }

  void run(CommAction action) {
    print("# %s\n#\n", std::string(name(action)).c_str());
    print("#%58s%35s\n", "out-of-place", "in-place");
    const char* columns = "%12s  %12s  %8s  %6s  %6s %8s %7s %7s %6s %8s %7s %7s %6s\n";
    print(columns, "#       size", "count", "type", "redop", "root", "time", "algbw", "busbw",
          "#wrong", "time", "algbw", "busbw", "#wrong");
    print(columns, "#        (B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
          "(GB/s)", "(GB/s)", "");
    const int ranks = communicator_.world_size();
    const bool in_parts = action != CommAction::kAllReduce;
    for (int64_t wanted = test_.smallest; wanted <= test_.largest; wanted *= test_.factor) {
      const int64_t parts = in_parts ? ranks : 1;
      const int64_t count = wanted / size_of(test_.dtype) / parts;
      if (count == 0) continue;
      const int64_t size = count * parts * size_of(test_.dtype);
      CommCall call{.action = action,
                    .group = &communicator_.world(),
                    .dtype = test_.dtype,
                    .output_dtype = test_.dtype,
                    .inner = count,
                    .input = input_.data(),
                    .output = output_.data(),
                    .label = "comm-test"};
      print("%12lld  %12lld  %8s  %6s  %6d", static_cast<long long>(size),
            static_cast<long long>(count), test_.dtype == DType::kF32 ? "float" : "bfloat16",
            action == CommAction::kAllGather ? "none" : "sum", -1);
      print_result(size, in_parts, measure(call));
      if (in_parts) {
        print(" %8s %7s %7s %6s\n", "N/A", "N/A", "N/A", "N/A");
      } else {
        call.output = input_.data();
        print_result(size, in_parts, measure(call));
        print("%s", "\n");
      }
      std::fflush(stdout);
    }
  }

  void print_result(int64_t size, bool in_parts, const Result& result) {
    const int ranks = communicator_.world_size();
    const double rate = static_cast<double>(size) / result.seconds / 1e9;
    const double bus = rate * (in_parts ? 1 : 2) * (ranks - 1) / ranks;
    print(" %8.1f %7.2f %7.2f %6lld", result.seconds * 1e6, rate, bus,
          static_cast<long long>(result.wrong));
    bandwidths_ += bus;
    ++measured_;
    wrong_ += result.wrong;
  }

  // Of the time between all begin and this rank's end, that of the slowest.
  Result measure(const CommCall& call) {
    auto fill_input = [&] {
      (test_.dtype == DType::kF32 ? fill<float> : fill<BF16>)(input_.data(), call.input_elements(),
                                                              communicator_.rank());
    };
    fill_input();
    for (int64_t i = 0; i < test_.warm_up_calls; ++i) communicator_.run(call);
    control_.barrier("begin");
    const double start = monotonic_seconds();
    for (int64_t i = 0; i < test_.calls; ++i) communicator_.run(call);
    const double seconds = (monotonic_seconds() - start) / static_cast<double>(test_.calls);
    fill_input();  // in place it has been summed over and over
    communicator_.run(call);
    const int64_t wrong =
        test_.dtype == DType::kF32 ? count_wrong<float>(call) : count_wrong<BF16>(call);
    Result result;
    for (const std::string& text :
         control_.exchange("result", format("%.9g %lld", seconds, static_cast<long long>(wrong)))) {
      double of_rank = 0;
      long long count = 0;
      std::sscanf(text.c_str(), "%lg %lld", &of_rank, &count);
      result.seconds = std::max(result.seconds, of_rank);
      result.wrong += count;
    }
    return result;
  }

  template <class T>
  int64_t count_wrong(const CommCall& call) const {
    const T* output = static_cast<const T*>(call.output);
    const int ranks = communicator_.world_size(), rank = communicator_.rank();
    int64_t wrong = 0;
    for (int64_t e = 0; e < call.output_elements(); ++e) {
      float expected = 0;
      if (call.action == CommAction::kAllGather) {
        expected = number(static_cast<int>(e / call.inner), e % call.inner);
      } else {
        const bool part = call.action == CommAction::kReduceScatter;
        for (int r = 0; r < ranks; ++r) expected += number(r, part ? rank * call.inner + e : e);
      }
      wrong += static_cast<float>(output[e]) != static_cast<float>(T(expected));
    }
    return wrong;
  }

  Control& control_;
  Communicator& communicator_;
  const CommTest& test_;
  HostBuffer input_, output_;
  double bandwidths_ = 0;
  int measured_ = 0;
  int64_t wrong_ = 0;
};

// A job on this host, with this process as its agent.
int run_ranks(const CommTest& test, std::span<const std::string> arguments) {
  const std::string token = hex(secret_random_bytes(32)), size = cat(test.ranks);
  TcpStoreServer store(token);
  std::vector<std::string> words{"tessera", "comm-test"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < test.ranks; ++rank) {
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

std::vector<OptionText> comm_test_options() { return texts(kOptions); }

int comm_test_command(std::span<const std::string> arguments) {
  CommTest test;
  if (!parse_own_options<CommTest>(kOptions, arguments, kHelp, test)) return 0;
  if (test.smallest > test.largest) throw UsageError("--minbytes is larger than --maxbytes");
  RunConfig config;
  config.distributed_backend = test.backend;
  config.comm_timeout = test.timeout;
  JobConnection job = join_job(config);
  if (!job.member) return run_ranks(test, arguments);
  if (!job.channels.communicator)
    throw UsageError("comm-test measures between ranks: this job has one");
  if (job.member->rank == 0) {
    std::printf("# tessera comm-test: %d ranks, %d on this host, %s\n#\n", job.member->world_size,
                job.member->local_world_size, test.backend.c_str());
    std::fflush(stdout);
  }
  return Measurement(job.channels, test).run() ? 0 : 1;
}

}  // namespace tessera
