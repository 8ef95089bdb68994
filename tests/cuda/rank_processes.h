#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/nccl_functions.h"

namespace tessera::cuda {

// A process for each rank, each with all of the emulated GPUs and the one of its number. A process
// that fails a test says so by its status.
class RankProcesses : public testing::Test {
 protected:
  struct Rank {
    EmulatedCuda& cuda;
    NcclFunctions& nccl;
    int rank;
    CUstream stream;
    ncclComm* comm = nullptr;

    ncclResult begin(int count) {
      ncclConfig config;
      config.blocking = 0;
      return nccl.comm_init_rank_config(&comm, count, nccl.id, rank, &config);
    }
    bool connect(int count) {
      const ncclResult begun = begin(count);
      return (begun == kNcclSuccess || begun == kNcclInProgress) && nccl.settle(comm);
    }
    // Done when all ranks have got there.
    void fence() {
      int* word = cuda.upload(std::vector<int>{0}, stream);
      EXPECT_EQ(nccl.all_reduce(word, word, 1, kNcclInt32, kNcclSum, comm, stream), 0);
    }
    void end() {
      EXPECT_EQ(cuda.stream_synchronize(stream), 0);
      const ncclResult ending = nccl.comm_finalize(comm);
      EXPECT_TRUE(ending == kNcclSuccess || ending == kNcclInProgress);
      EXPECT_TRUE(nccl.settle(comm));
      EXPECT_EQ(nccl.comm_destroy(comm), 0);
    }
  };

  // Statuses by rank, -n for signal n.
  std::vector<int> statuses(int count, const std::function<void(Rank&)>& body,
                            const std::string& variant = "quick") {
    EmulatedCuda parent(variant, 1, count);
    NcclFunctions nccl(parent);
    std::fflush(nullptr);  // or children say it again
    std::vector<pid_t> children;
    for (int rank = 0; rank < count; ++rank) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      {
        EmulatedCuda cuda(variant, static_cast<uint64_t>(rank) + 1, count);
        cuda.use_device(rank);
        Rank own{cuda, nccl, rank, cuda.make_stream()};
        body(own);
      }
      std::fflush(nullptr);
      ::_exit(HasFailure() ? 1 : 0);
    }
    std::vector<int> statuses;
    for (pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      statuses.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    return statuses;
  }
  void in_processes(int count, const std::function<void(Rank&)>& body,
                    const std::string& variant = "quick") {
    EXPECT_EQ(statuses(count, body, variant), std::vector<int>(static_cast<size_t>(count), 0));
  }
};

}  // namespace tessera::cuda
