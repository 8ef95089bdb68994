#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "data/dataset_files.h"
#include "data/stream_lane.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

// Data sets with fewer documents than lanes, which say their tokens themselves.
class EmptyLanesTest : public testing::Test {
 protected:
  StreamSettings::Source source(const std::string& name, const std::vector<int>& documents,
                                int32_t token, double weight = 1) {
    std::vector<std::filesystem::path> paths;
    for (int count : documents) {
      std::string lines;
      for (int i = 0; i < count; ++i) lines += cat(R"({"text": ")", token, "\"}\n");
      paths.push_back(directory_.write(cat(name, "-", paths.size(), ".json"), lines));
    }
    auto encode = [](const Record& record, TokenDocument& out) {
      out.ids.assign(4, static_cast<int32_t>(std::stoi(record.text)));
    };
    return {local_entries(paths), weight, {}, encode, name};
  }

  StreamSettings settings(std::vector<StreamSettings::Source> sources) {
    StreamSettings all;
    all.sources = std::move(sources);
    all.lanes = 12;
    all.context = 8;
    all.packing = Packing::kRows;
    return all;
  }

  // How many rows begin with each token, of so many windows of each lane.
  std::map<int32_t, int> rows(const StreamSettings& all, int windows) {
    std::map<int32_t, int> count;
    std::vector<int32_t> inputs(8), targets(8);
    for (int64_t number = 0; number < all.lanes; ++number) {
      StreamLane lane(all, number);
      for (int i = 0; i < windows; ++i)
        if (lane.next({inputs, targets, {}}) > 0) ++count[inputs[0]];
      if (all.sources.size() == 1) {
        EXPECT_TRUE(lane.state().ended);
      }
    }
    return count;
  }

  ScratchDirectory directory_;
};

TEST_F(EmptyLanesTest, ALaneWithoutADocumentHasSomeInAnotherEpoch) {
  for (uint64_t seed : {1, 2, 3, 4}) {
    StreamSettings all = settings({source("uneven", {60, 3}, 7)});
    all.seed = seed;
    all.epochs = 4;
    EXPECT_EQ(rows(all, 200)[7], 4 * 63) << seed;
  }
}

TEST_F(EmptyLanesTest, AMixKeepsItsSharesWhereOtherEpochsDealOtherFiles) {
  StreamSettings all = settings({source("uneven", {60, 3}, 7), source("even", {120}, 9)});
  auto count = rows(all, 100);
  EXPECT_EQ(count[7], 600);
  EXPECT_EQ(count[9], 600);
}

TEST_F(EmptyLanesTest, WhatHasNothingForALaneIsGivenUpAndSaid) {
  for (bool shuffle : {true, false}) {
    StreamSettings all =
        settings({source("even", {120}, 9), source(cat("tiny", shuffle), {2, 2, 2}, 7)});
    all.shuffle = shuffle;
    testing::internal::CaptureStderr();
    auto count = rows(all, 100);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(count[7] + count[9], 1200);
    EXPECT_GT(count[7], 0);
    EXPECT_LT(count[7], 600);
    expect_contains(said, cat("data set 'tiny", shuffle,
                              "' has no document for some of the --data_lanes 12: it gives less "
                              "than its share of the mix; give --data_lanes N"));
  }
}

TEST_F(EmptyLanesTest, RowsWithoutAnythingAreSaid) {
  StreamSettings all = settings({source("book", {1}, 7)});
  all.epochs = 1 << 30;
  testing::internal::CaptureStderr();
  StreamLane lane(all, 5);
  std::vector<int32_t> inputs(8), targets(8);
  EXPECT_EQ(lane.next({inputs, targets, {}}), 0);
  EXPECT_TRUE(lane.state().ended);
  expect_contains(testing::internal::GetCapturedStderr(),
                  "'book' has no document for some of the --data_lanes 12: their rows are empty");
}

}  // namespace
}  // namespace tessera
