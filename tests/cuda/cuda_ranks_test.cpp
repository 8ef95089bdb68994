// Several ranks, each a thread with an emulated GPU of its own, which exchange through the double
// of NCCL: they train like one rank on the CPU; the same bits whatever the order; who cannot take
// part.
#include <latch>
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/nccl_network.h"
#include "tests/base/error_expectation.h"
#include "tests/comm/thread_channels.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_training.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kRows = 4, kLength = 16;  // rows of the global micro-batch

struct Outcome {
  std::vector<double> losses, norms;
  uint64_t state = 0;  // of one rank
  bool operator==(const Outcome&) const = default;
};

ProgramOptions options_of(const Spread& spread, DType compute) {
  return spread_programs(spread, tiny_model(), kRows, kLength, compute);
}

Outcome train(const Spread& spread, DType compute, Backend& backend, int rank) {
  const ProgramOptions options = options_of(spread, compute);
  Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
  begin_training(session);
  const int64_t rows = options.batch, first = options.parallelism.data_rank(rank) * rows;
  Outcome outcome;
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<TinyBatch> batches;
    std::vector<MicroBatch> views;
    for (uint64_t m = 0; m < 2; ++m)
      batches.emplace_back(TinyBatch(kRows, kLength, 10 * step + m), kLength, first, first + rows);
    for (const TinyBatch& batch : batches) views.push_back(batch.view());
    const StepResult result = session.step(views, 1e-2, 0.5);
    EXPECT_TRUE(result.ok);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  outcome.state = fingerprint_of(session);
  return outcome;
}

class CudaRanksTest : public CudaTest {
 protected:
  // What the ranks of a job do, each on its thread and GPU.
  template <class Work>
  void on_ranks(int world, const Work& work) {
    auto hub = std::make_shared<ThreadHub>(world);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
        work(rank, *channels.control);
      });
    }
  }
  std::vector<Outcome> train_on_cuda(const Spread& spread, DType compute, bool graphs = true,
                                     SumOrder sums = SumOrder::kLibrary, bool peers = true) {
    std::vector<Outcome> outcomes(static_cast<size_t>(spread.world));
    on_ranks(spread.world, [&](int rank, Control& control) {
      CudaBackend backend(
          {.gpu = rank, .graphs = graphs, .control = &control, .sums = sums, .peers = peers});
      outcomes[static_cast<size_t>(rank)] = train(spread, compute, backend, rank);
    });
    return outcomes;
  }
};

TEST_F(CudaRanksTest, TrainLikeOne) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    cpu::CpuBackend cpu(2, cpu::detect_isa());
    const Outcome one = train({}, compute, cpu, 0);
    const double bound = compute == DType::kF32 ? 1e-5 : 2e-3;
    for (const Spread& spread :
         {Spread{2}, Spread{4, "hybrid_shard", 2}, Spread{2, "full_shard", 0, 2}}) {
      reset(1, spread.world);
      for (const Outcome& outcome : train_on_cuda(spread, compute)) {
        for (size_t s = 0; s < one.losses.size(); ++s) {
          EXPECT_NEAR(outcome.losses[s], one.losses[s], bound * one.losses[s]) << s;
          EXPECT_NEAR(outcome.norms[s], one.norms[s], 20 * bound * one.norms[s]) << s;
        }
      }
    }
  }
}

// Whether calls of NCCL are done at once or later, too.
TEST_F(CudaRanksTest, GiveTheSameBitsWithGraphsAndWithout) {
  const Spread spread{2};
  std::vector<std::vector<Outcome>> all;
  for (uint64_t seed : {1, 2}) {
    reset(seed, spread.world);
    if (seed == 2) lag_behind();
    all.push_back(train_on_cuda(spread, DType::kBF16, seed == 1));
    EXPECT_EQ(all.back(), all.front()) << seed;
  }
}

// Where the emulated NCCL adds in rank order nothing but the way of the bytes is another; where it
// adds as rings do its own sums are others, and those in rank order are not.
TEST_F(CudaRanksTest, GiveTheSameBitsWithSumsInRankOrder) {
  const Spread spread{4};
  const auto with = [&](bool rings, SumOrder sums) {
    reset(rings ? 2 : 1, spread.world);
    if (rings) sum_in_rings(), lag_behind();
    return train_on_cuda(spread, DType::kBF16, true, sums);
  };
  const std::vector<Outcome> in_order = with(false, SumOrder::kLibrary);
  EXPECT_EQ(with(true, SumOrder::kRanks), in_order);
  EXPECT_NE(with(true, SumOrder::kLibrary), in_order);
}

// Read where they lie or moved by NCCL, with graphs and without, in whatever order; some groups on
// one host and some not. On this machine's GPUs, too.
TEST_F(CudaRanksTest, GiveTheSameBitsWithPeersMemoryAndWithout) {
  const Spread spread = has_gpus(4) ? Spread{4, "hybrid_shard", 2} : Spread{2};
  std::vector<int64_t> fences_seen;
  std::vector<std::vector<Outcome>> all;
  for (const auto& [seed, graphs, peers] :
       {std::tuple(1, true, true), {2, false, true}, {3, true, false}}) {
    reset(static_cast<uint64_t>(seed), spread.world);
    if (emulated() && seed == 2) lag_behind();
    all.push_back(train_on_cuda(spread, DType::kBF16, graphs, SumOrder::kRanks, peers));
    EXPECT_EQ(all.back(), all.front()) << seed;
    if (!emulated()) continue;
    fences_seen.push_back(fences());
    EXPECT_EQ(exchanges(true), exchanges(false));
    EXPECT_TRUE(findings().empty());
  }
  if (!emulated()) return;
  EXPECT_GT(fences_seen[0], 20);
  EXPECT_EQ(fences_seen[1], fences_seen[0]);
  EXPECT_LT(fences_seen[2], fences_seen[0]);
}

// All memory of all exchanges. Where one rank has a NCCL that does not register, or leaves it out,
// no rank does, and all is as ever.
TEST_F(CudaRanksTest, RegisterTheMemoryOfTheirExchanges) {
  const Spread spread{4, "hybrid_shard", 2};
  std::vector<Outcome> registered;
  for (const int refused : {0, kNcclInvalidUsage, -1}) {
    reset(1, spread.world);
    if (refused) refuse_registration(1, refused);
    const std::vector<Outcome> outcomes = train_on_cuda(spread, DType::kBF16);
    if (!refused) registered = outcomes;
    EXPECT_EQ(outcomes, registered);
    EXPECT_GT(exchanges(false), 100);
    EXPECT_EQ(exchanges(true), refused ? 0 : exchanges(false));
    EXPECT_TRUE(findings().empty());
  }
}

TEST_F(CudaRanksTest, SayWhyMemoryIsNotRegistered) {
  reset(1, 2);
  refuse_registration(1, kNcclInvalidUsage);
  on_ranks(2, [&](int rank, Control& control) {
    CudaDevice device(rank);
    NcclCommunicator communicator(device, control, std::chrono::seconds(60));
    EXPECT_EQ(communicator.without_registration(), "");
    const auto& group = communicator.make_group({{0, 1}});
    DeviceBlock block(device, 64, "a block");
    communicator.register_memory(
        {{NcclCommunicator::comm_of(group, Lane::kReduce), block.data(), block.bytes()}});
    EXPECT_EQ(communicator.without_registration(), "rank 1: NCCL: invalid usage");
  });
}

TEST_F(CudaRanksTest, DoNotShareAGpu) {
  reset(1, 2);
  std::vector<std::string> errors(2);
  on_ranks(2, [&](int rank, Control& control) {
    errors[static_cast<size_t>(rank)] =
        message_of<DeviceError>([&] { CudaBackend({.gpu = 1, .control = &control}); });
  });
  for (const std::string& error : errors) expect_contains(error, "ranks 0 and 1 have the same GPU");
}

// A rank fails while the others wait for its exchange, for a result or to read their state: they
// end with its reason.
TEST_F(CudaRanksTest, EndWithARankThatFails) {
  for (const auto& [reads, sums] : {std::pair(false, SumOrder::kLibrary),
                                    {true, SumOrder::kLibrary},
                                    {true, SumOrder::kRanks}}) {
    reset(1, 2);
    std::vector<std::string> errors(2);
    on_ranks(2, [&, reads = reads, sums = sums](int rank, Control& control) {
      try {
        CudaBackend backend({.gpu = rank, .control = &control, .sums = sums});
        const ProgramOptions options = options_of(Spread{2}, DType::kF32);
        Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
        session.allocate();
        if (rank == 1) {
          control.report_failure("the disk is full");
          return;
        }
        TinyBatch batch(options.batch, kLength, 0);
        session.accumulate(std::vector{batch.view()});
        if (reads)
          fingerprint_of(session);
        else
          session.start_update(1e-2, 1, {}).result();
      } catch (const CommError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
    expect_contains(errors[0], "rank 1 failed: the disk is full");
    EXPECT_TRUE(findings().empty());
  }
}

// What is recorded so far goes too, before exchanges are broken off.
TEST_F(CudaRanksTest, EndWithARankThatFailsWhileTheyRecord) {
  reset(1, 2);
  lag_behind();
  std::string error;
  on_ranks(2, [&](int rank, Control& control) {
    CudaBackend backend({.gpu = rank, .control = &control});
    const ProgramOptions options = options_of(Spread{2}, DType::kF32);
    Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
    session.allocate();
    const TinyBatch batch(options.batch, kLength, 0);
    session.accumulate(std::vector{batch.view()});
    control.barrier("launch by launch");
    if (rank == 1) return control.report_failure("the disk is full");
    EXPECT_THROW(control.barrier("recorded"), CommError);
    error = message_of<CommError>([&] { session.accumulate(std::vector{batch.view()}); });
  });
  expect_contains(error, "rank 1 failed: the disk is full");
  EXPECT_EQ(graph_launches(), 0);
}

// A rank that is well, as far as the control plane knows, and does not come to an exchange.
TEST_F(CudaRanksTest, NameARankThatDoesNotCome) {
  reset(1, 2);
  std::vector<std::string> errors(2);
  std::latch over(2);
  on_ranks(2, [&](int rank, Control& control) {
    const std::chrono::milliseconds soon(4000);
    CudaBackend backend({.gpu = rank, .control = &control, .deadline = soon});
    const ProgramOptions options = options_of(Spread{2}, DType::kF32);
    Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
    session.allocate();
    if (rank == 0) {
      TinyBatch batch(options.batch, kLength, 0);
      session.accumulate(std::vector{batch.view()});
      errors[0] = message_of<CommError>([&] { fingerprint_of(session); });
    }
    over.arrive_and_wait();
  });
  expect_contains(errors[0], "rank 1 has started 0 runs of programs, this one 1");
  EXPECT_TRUE(findings().empty());
}

// NCCL hears of a rank that is lost before the job's control does, and does not know which it is.
TEST_F(CudaRanksTest, NameARankOfWhichNcclHearsFirst) {
  reset(1, 2);
  std::string error;
  on_ranks(2, [&](int rank, Control& control) {
    CudaDevice device(rank);
    NcclCommunicator communicator(device, control, std::chrono::seconds(60));
    control.barrier("connected");
    if (rank == 0) {
      break_communicators(kNcclRemoteError);
      error = message_of<CommError>([&] { communicator.check(0); });
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      control.report_failure("the power is gone");
    }
  });
  EXPECT_EQ(error, "rank 1 failed: the power is gone");
}

TEST_F(CudaRanksTest, GiveAllThreadsThatAskTheFirstCause) {
  reset(1, 2);
  std::vector<std::string> errors(3);
  on_ranks(2, [&](int rank, Control& control) {
    CudaDevice device(rank);
    NcclCommunicator communicator(device, control, std::chrono::seconds(60));
    control.barrier("connected");
    if (rank == 1) return control.report_failure("the disk is full");
    std::vector<std::jthread> threads;
    for (std::string& error : errors) {
      threads.emplace_back([&] {
        error = message_of<CommError>([&] {
          while (true) communicator.check(0);
        });
      });
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1 failed: the disk is full");
}

// Lines as NCCL and aws-ofi-nccl write them.
TEST_F(CudaRanksTest, KnowTheirNetworkFromNcclsLog) {
  EXPECT_EQ(NcclNetwork::name_in(""), "");
  EXPECT_EQ(NcclNetwork::name_in("host:12:12 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
                                 "host:12:34 [0] NCCL INFO Using network Socket\n"),
            "Socket");
  EXPECT_EQ(NcclNetwork::name_in("host:12:34 [0] NCCL INFO NET/OFI Selected Provider is efa\n"
                                 "host:12:34 [0] NCCL INFO Using network AWS Libfabric\nmore"),
            "AWS Libfabric, provider efa");
  EXPECT_EQ(NcclNetwork::name_in("NET/OFI Selected provider is efa, fabric is efa-direct\n"
                                 "Using network Libfabric"),
            "Libfabric, provider efa");
}

}  // namespace
}  // namespace tessera::cuda
