// One suite for all communicators: every way of making ranks gets the same calls and must give the
// bits of a serial sum in rank order.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/text.h"
#include "tests/comm/collective_oracle.h"
#include "tests/comm/rank_runner.h"

namespace tessera {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kMayFork = false;
#else
constexpr bool kMayFork = true;
#endif

class Communicators : public testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  void SetUp() override {
    if (is_processes(way()) && !kMayFork)
      GTEST_SKIP() << "ThreadSanitizer does not follow forked processes: ranks are threads only";
  }
  Way way() const { return std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(Communicator&)>& body) const {
    RankJob job;
    job.way = way();
    job.world = world();
    std::vector<RankResult> results = run_ranks(job, body);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].error, "") << "rank " << rank;
      EXPECT_EQ(results[rank].signal, 0) << "rank " << rank;
    }
  }
};

void check_output(const CollectiveCase& c, const CommGroup& group, const std::byte* output) {
  std::vector<std::byte> expected = expected_output(c, group, group.index);
  for (size_t i = 0; i < expected.size(); ++i)
    if (output[i] != expected[i])
      require(false, cat(describe(c), " in ", group.name, ": byte ", i, " of ", expected.size(),
                         " differs"));
}

// One call with input and output in the memory that `where` gives.
void check_case(Communicator& communicator, const CollectiveCase& c, const CommGroup& group,
                std::byte* input, std::byte* output) {
  std::vector<std::byte> content = input_of(c, group, communicator.rank());
  std::copy(content.begin(), content.end(), input);
  communicator.run(call_of(c, group, input, output));
  check_output(c, group, output);
  bool kept = input == output || std::equal(content.begin(), content.end(), input);
  require(kept, describe(c) + " changed its input");
}

// Bytes that no case exceeds.
constexpr int64_t kBufferBytes = 8 << 20;

TEST_P(Communicators, EveryCollectiveInOrdinaryMemory) {
  run([](Communicator& communicator) {
    HostBuffer input(kBufferBytes), output(kBufferBytes);
    for (const CollectiveCase& c : collective_cases())
      check_case(communicator, c, communicator.world(), input.data(), output.data());
  });
}

TEST_P(Communicators, EveryCollectiveInSharedMemory) {
  run([](Communicator& communicator) {
    HostBuffer input = communicator.allocate(kBufferBytes);
    HostBuffer output = communicator.allocate(kBufferBytes);
    for (const CollectiveCase& c : collective_cases())
      check_case(communicator, c, communicator.world(), input.data() + 64, output.data() + 128);
  });
}

TEST_P(Communicators, AllReduceInPlace) {
  run([](Communicator& communicator) {
    HostBuffer shared = communicator.allocate(kBufferBytes), ordinary(kBufferBytes);
    for (const CollectiveCase& c : collective_cases()) {
      if (c.action != CommAction::kAllReduce || c.dtype != c.output_dtype) continue;
      // Rank 0's buffer lies elsewhere than the others'.
      for (bool in_shared : {true, false, communicator.rank() == 0}) {
        std::byte* data = in_shared ? shared.data() : ordinary.data();
        check_case(communicator, c, communicator.world(), data, data);
      }
    }
  });
}

TEST_P(Communicators, CallsInFlightRunInOrder) {
  run([](Communicator& communicator) {
    CollectiveCase c{CommAction::kReduceScatter, DType::kBF16, DType::kF32, 1, 60'001};
    constexpr size_t kCalls = 6;
    std::vector<std::vector<std::byte>> inputs, outputs(kCalls);
    std::vector<Communicator::Ticket> tickets;
    const CommGroup& group = communicator.world();
    for (c.seed = 0; c.seed < kCalls; ++c.seed) {
      inputs.push_back(input_of(c, group, communicator.rank()));
      std::vector<std::byte>& output = outputs[c.seed];
      output.resize(static_cast<size_t>(c.inner * size_of(c.output_dtype)));
      tickets.push_back(communicator.start(call_of(c, group, inputs.back().data(), output.data())));
    }
    // Waiting for one means that those before it are done.
    communicator.wait(tickets[3]);
    for (c.seed = 0; c.seed < 4; ++c.seed) check_output(c, group, outputs[c.seed].data());
    communicator.wait(tickets.back());
    for (c.seed = 4; c.seed < kCalls; ++c.seed) check_output(c, group, outputs[c.seed].data());
  });
}

TEST_P(Communicators, RowsAndColumnsOfAMeshInterleaved) {
  if (world() != 4) GTEST_SKIP() << "a mesh of 2 x 2 has four ranks";
  run([](Communicator& communicator) {
    int r = communicator.rank();
    const CommGroup& row = communicator.make_group({r / 2 * 2, r / 2 * 2 + 1}, "row");
    const CommGroup& column = communicator.make_group({r % 2, r % 2 + 2}, "column");
    const CommGroup& alone = communicator.make_group({r}, "alone");
    require(row.id == 1 && column.id == 2 && column.index == r / 2, "groups");
    HostBuffer input = communicator.allocate(kBufferBytes), output(kBufferBytes);
    for (const CollectiveCase& c : collective_cases()) {
      if (c.seed % 5 != 0) continue;
      for (const CommGroup* group : {&row, &column, &communicator.world(), &column, &alone})
        check_case(communicator, c, *group, input.data(), output.data());
    }
  });
}

TEST_P(Communicators, BarriersAndTextsOfAllRanks) {
  run([](Communicator& communicator) {
    for (int i = 0; i < 50; ++i) communicator.barrier("a barrier");
    std::string own(static_cast<size_t>(communicator.rank()) * 7, 'x');
    std::vector<std::string> all = communicator.exchange(own, "texts");
    require(all.size() == static_cast<size_t>(communicator.world_size()), "one text a rank");
    for (size_t rank = 0; rank < all.size(); ++rank)
      require(all[rank] == std::string(rank * 7, 'x'), cat("the text of rank ", rank));
  });
}

TEST_P(Communicators, MemoryIsZeroedAndGivenBack) {
  run([](Communicator& communicator) {
    CollectiveCase c{CommAction::kAllGather, DType::kF32, DType::kF32, 1, 5000};
    HostBuffer output(kBufferBytes);
    for (int i = 0; i < 8; ++i) {
      HostBuffer input = communicator.allocate(1 << 20);
      require(*input.data() == std::byte{0}, "zeroed");
      check_case(communicator, c, communicator.world(), input.data(), output.data());
    }
    require(communicator.allocate(0).bytes() == 0, "nothing is nothing");
  });
}

INSTANTIATE_TEST_SUITE_P(All, Communicators,
                         testing::Combine(testing::Values(Way::kThreads, Way::kStagedThreads,
                                                          Way::kSharedMemory, Way::kGloo,
                                                          Way::kMix),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& parameter) {
                           return name(std::get<0>(parameter.param)) +
                                  std::to_string(std::get<1>(parameter.param));
                         });

}  // namespace
}  // namespace tessera
