// One suite for all communicators: every way of making ranks gets the same calls and must give the
// bits of a serial sum in rank order.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "base/text.h"
#include "tests/comm/collective_oracle.h"
#include "tests/comm/rank_suite.h"

namespace tessera {
namespace {

using Communicators = RankSuite;

void compare(const CollectiveCase& c, const CommGroup& group, const std::byte* output,
             const std::vector<std::byte>& expected) {
  if (expected.empty() || std::memcmp(output, expected.data(), expected.size()) == 0) return;
  for (size_t i = 0; i < expected.size(); ++i)
    if (output[i] != expected[i])
      require(false, cat(describe(c), " in ", group.name, ": byte ", i, " of ", expected.size(),
                         " differs"));
}

void check_output(const CollectiveCase& c, const CommGroup& group, const std::byte* output) {
  compare(c, group, output, expected_output(c, group, group.index));
}

// One call with input and output in the given memory, which may be the same.
void run_case(Communicator& communicator, const CollectiveCase& c, const CommGroup& group,
              const std::vector<std::byte>& content, std::byte* input, std::byte* output) {
  std::copy(content.begin(), content.end(), input);
  communicator.run(call_of(c, group, input, output));
  bool kept = input == output || std::equal(content.begin(), content.end(), input);
  require(kept, describe(c) + " changed its input");
}

void check_case(Communicator& communicator, const CollectiveCase& c, const CommGroup& group,
                std::byte* input, std::byte* output) {
  run_case(communicator, c, group, input_of(c, group, communicator.rank()), input, output);
  check_output(c, group, output);
}

// Bytes that no case exceeds.
constexpr int64_t kBufferBytes = 4 << 20;

// Computing what must come out takes longer than the calls: one table for all ways of a world.
// Under ThreadSanitizer a part of it: the order of threads counts there, not the numbers.
const CollectiveTable& table_of(int world) {
  static int made_for = 0;
  static std::optional<CollectiveTable> table;
  if (made_for != world) table.emplace(world, kThreadSanitizer ? 7 : 1);
  made_for = world;
  return *table;
}

TEST_P(Communicators, EveryCollective) {
  const CollectiveTable& table = table_of(world());
  run([&table](Communicator& communicator) {
    int rank = communicator.rank();
    const CommGroup& group = communicator.world();
    HostBuffer ordinary[2]{HostBuffer(kBufferBytes), HostBuffer(kBufferBytes)};
    HostBuffer shared[2]{communicator.allocate(kBufferBytes), communicator.allocate(kBufferBytes)};
    for (const CollectiveTable::Entry& entry : table.entries) {
      auto check = [&](std::byte* input, std::byte* output) {
        const CollectiveCase& c = entry.c;
        run_case(communicator, c, group, entry.inputs[static_cast<size_t>(rank)], input, output);
        compare(c, group, output, entry.output(rank));
      };
      check(ordinary[0].data(), ordinary[1].data());
      check(shared[0].data() + 64, shared[1].data() + 128);
      if (entry.c.action != CommAction::kAllReduce || entry.c.dtype != entry.c.output_dtype)
        continue;
      // In place; rank 0's buffer lies elsewhere than the others'.
      HostBuffer* place = rank == 0 ? ordinary : shared;
      check(place->data(), place->data());
      place = rank == 0 ? shared : ordinary;
      check(place->data(), place->data());
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

class MeshOfFour : public Communicators {};

TEST_P(MeshOfFour, RowsAndColumnsInterleaved) {
  run([](Communicator& communicator) {
    int r = communicator.rank();
    const CommGroup& row = communicator.make_group({r / 2 * 2, r / 2 * 2 + 1}, "row");
    const CommGroup& column = communicator.make_group({r % 2, r % 2 + 2}, "column");
    const CommGroup& alone = communicator.make_group({r}, "alone");
    require(row.id == 1 && column.id == 2 && column.index == r / 2, "groups");
    HostBuffer input = communicator.allocate(kBufferBytes), output(kBufferBytes);
    for (const CollectiveCase& c : collective_cases(4)) {
      if (c.seed % 7 != 0) continue;
      for (const CommGroup* group : {&row, &column, &communicator.world(), &column, &alone})
        check_case(communicator, c, *group, input.data(), output.data());
    }
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

std::string test_name(const testing::TestParamInfo<std::tuple<int, Way>>& info) {
  return name(std::get<1>(info.param)) + std::to_string(std::get<0>(info.param));
}
const auto kAllWays =
    testing::Values(Way::kThreads, Way::kStagedThreads, Way::kSharedMemory, Way::kGloo, Way::kMix);
// The world first: the table is made once for each.
INSTANTIATE_TEST_SUITE_P(All, Communicators,
                         testing::Combine(testing::Values(1, 2, 3, 4), kAllWays), test_name);
INSTANTIATE_TEST_SUITE_P(All, MeshOfFour, testing::Combine(testing::Values(4), kAllWays),
                         test_name);

}  // namespace
}  // namespace tessera
