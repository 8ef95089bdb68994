// The double of NCCL between processes: the same rules as between threads, and ranks that die.
#include <signal.h>

#include "tests/cuda/rank_processes.h"

namespace tessera::cuda {
namespace {

using NcclProcesses = RankProcesses;

TEST_F(NcclProcesses, Exchange) {
  in_processes(3, [](Rank& r) {
    ASSERT_TRUE(r.connect(3));
    float* x = r.cuda.upload(part(r.rank, 6), r.stream);
    auto* y = r.cuda.allocate<float>(18);
    EXPECT_EQ(r.nccl.all_gather(x, y, 6, kNcclFloat32, r.comm, r.stream), 0);
    const auto gathered = r.cuda.download(y, 18, r.stream);
    for (size_t i = 0; i < 18; ++i) EXPECT_EQ(gathered[i], part(static_cast<int>(i / 6), 6)[i % 6]);
    EXPECT_EQ(r.nccl.reduce_scatter(x, y, 2, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    const auto scattered = r.cuda.download(y, 2, r.stream);
    EXPECT_EQ(scattered[0], 3 * static_cast<float>(r.rank * 2 + 1) + 300);
    EXPECT_EQ(r.nccl.all_reduce(x, x, 6, kNcclFloat32, kNcclMax, r.comm, r.stream), 0);
    EXPECT_EQ(r.cuda.download(x, 6, r.stream), part(2, 6));
    // To the right neighbour and to itself, in one group.
    float* z = r.cuda.upload(part(r.rank, 4), r.stream);
    EXPECT_EQ(r.nccl.group_start(), 0);
    for (int to : {(r.rank + 1) % 3, r.rank})
      EXPECT_EQ(r.nccl.send(z, 4, kNcclFloat32, to, r.comm, r.stream), 0);
    EXPECT_EQ(r.nccl.receive(y, 4, kNcclFloat32, (r.rank + 2) % 3, r.comm, r.stream), 0);
    EXPECT_EQ(r.nccl.receive(y + 4, 4, kNcclFloat32, r.rank, r.comm, r.stream), 0);
    EXPECT_EQ(r.nccl.group_end(), 0);
    EXPECT_EQ(r.cuda.download(y, 4, r.stream), part((r.rank + 2) % 3, 4));
    EXPECT_EQ(r.cuda.download(y + 4, 4, r.stream), part(r.rank, 4));
    r.end();
  });
}

TEST_F(NcclProcesses, SplitAndReplayGraphs) {
  in_processes(4, [](Rank& r) {
    ASSERT_TRUE(r.connect(4));
    ncclConfig config;
    config.blocking = 0;
    ncclComm* half = nullptr;
    // Ranks 3 and 1 in this order, and 2 and 0.
    r.nccl.comm_split(r.comm, r.rank % 2, -r.rank, &half, &config);
    ASSERT_TRUE(r.nccl.settle(r.comm));
    float* x = r.cuda.upload(part(r.rank, 1), r.stream);
    auto* y = r.cuda.allocate<float>(2);
    EXPECT_EQ(r.nccl.all_gather(x, y, 1, kNcclFloat32, half, r.stream), 0);
    const auto result = r.cuda.download(y, 2, r.stream);
    EXPECT_EQ(result[0], 100.0f * static_cast<float>(r.rank % 2 + 2) + 1);
    EXPECT_EQ(result[1], 100.0f * static_cast<float>(r.rank % 2) + 1);
    r.cuda.upload(x, std::vector<float>{1}, r.stream);
    const CUgraphExec executable = r.cuda.captured(r.stream, [&] {
      EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    });
    for (int n = 0; n < 3; ++n) ASSERT_EQ(r.cuda.graph_launch(executable, r.stream), 0);
    EXPECT_EQ(r.cuda.download(x, 1, r.stream)[0], 64.0f);
    EXPECT_EQ(r.cuda.graph_exec_destroy(executable), 0);
    r.end();
  });
}

TEST_F(NcclProcesses, ThatCallDifferentThings) {
  in_processes(2, [](Rank& r) {
    ASSERT_TRUE(r.connect(2));
    float* x = r.cuda.upload(part(r.rank, 8), r.stream);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
    const size_t count = r.rank == 1 ? 3 : 4;
    r.nccl.all_reduce(x, x, count, kNcclFloat32, kNcclSum, r.comm, r.stream);
    const CUevent event = r.cuda.make_event();
    r.cuda.event_record(event, r.stream);
    while (r.cuda.findings() == 0) EXPECT_EQ(r.cuda.event_query(event), kCudaErrorNotReady);
    r.cuda.expect_found("ranks call different things at the same place");
    EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    EXPECT_EQ(r.cuda.event_synchronize(event), 0);
  });
}

TEST_F(NcclProcesses, OnOneGpuAreRefused) {
  in_processes(2, [](Rank& r) {
    r.cuda.use_device(1);
    r.begin(2);
    EXPECT_FALSE(r.nccl.settle(r.comm));
    r.cuda.expect_found("two ranks on one device");
  });
}

// A rank that is killed is one that never comes: the other waits, until it gives up.
TEST_F(NcclProcesses, OneThatIsKilledNeverComes) {
  const std::vector<int> ended = statuses(2, [](Rank& r) {
    ASSERT_TRUE(r.connect(2));
    float* x = r.cuda.upload(part(r.rank, 4), r.stream);
    EXPECT_EQ(r.nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    r.cuda.stream_synchronize(r.stream);
    if (r.rank == 1) ::raise(SIGKILL);
    EXPECT_EQ(r.nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    const CUevent event = r.cuda.make_event();
    r.cuda.event_record(event, r.stream);
    for (int n = 0; n < 200; ++n) EXPECT_EQ(r.cuda.event_query(event), kCudaErrorNotReady);
    ncclResult error = 0;
    EXPECT_EQ(r.nccl.comm_get_async_error(r.comm, &error), 0);
    EXPECT_EQ(error, kNcclSuccess);
    EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    EXPECT_EQ(r.cuda.event_synchronize(event), 0);
  });
  EXPECT_EQ(ended, (std::vector<int>{0, -SIGKILL}));
}

}  // namespace
}  // namespace tessera::cuda
