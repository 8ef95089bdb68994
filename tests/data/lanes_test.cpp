#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"
#include "data/lane_files.h"
#include "data/lane_state.h"
#include "data/position_bytes.h"

namespace tessera {
namespace {

TEST(LaneFiles, DealEveryRecordToOneLane) {
  for (int64_t lanes : {1, 3, 7, 96}) {
    for (size_t files : {1u, 2u, 5u, 7u, 8u, 95u, 96u, 97u, 1024u}) {
      SCOPED_TRACE(cat(lanes, " lanes, ", files, " files"));
      LaneFiles deal(files, lanes, 5, true);
      std::vector<std::vector<int>> taken(files, std::vector<int>(static_cast<size_t>(lanes), 0));
      std::vector<double> shares(static_cast<size_t>(lanes));
      for (int64_t lane = 0; lane < lanes; ++lane) {
        for (int64_t i = 0; i < deal.parts(lane); ++i) {
          const LanePart part = deal.part(lane, 3, i);
          int64_t records = 0;
          for (int64_t record = 0; record < lanes; ++record) {
            if (!part.holds(record)) continue;
            ++taken[part.file][static_cast<size_t>(record)];
            ++records;
          }
          EXPECT_GT(records, 0);
          shares[static_cast<size_t>(lane)] +=
              static_cast<double>(records) / static_cast<double>(lanes);
        }
      }
      for (const auto& file : taken)
        for (int times : file) EXPECT_EQ(times, 1);
      for (double share : shares)
        EXPECT_NEAR(share, static_cast<double>(files) / static_cast<double>(lanes), 1e-9);
    }
  }
}

TEST(LaneFiles, DealOtherwiseInEveryEpoch) {
  LaneFiles deal(50, 10, 1, true), plain(50, 10, 1, false);
  int same = 0;
  for (int64_t i = 0; i < 5; ++i) {
    same += deal.part(2, 0, i).file == deal.part(2, 1, i).file;
    EXPECT_EQ(plain.part(2, 4, i).file, static_cast<size_t>(10 * i + 2));
  }
  EXPECT_LT(same, 5);
}

TEST(LaneState, OfBeforeEpochsHadLimitsIsRead) {
  PositionWriter writer('l');
  for (uint64_t value : {1, 1, 2, 3, 4, 5, 6, 0}) writer.add(value);
  writer.add(std::string_view());
  for (uint64_t value : {0, 0, 0, 0, 8, 0}) writer.add(value);
  const LaneState state = lane_state_from_bytes(writer.finish(), 1, "x");
  EXPECT_EQ(state.sources[0].documents, 4);
  EXPECT_EQ(state.sources[0].draws, 5u);
  EXPECT_EQ(state.sources[0].tokens, 6);
  EXPECT_EQ(state.last, 7);
}

}  // namespace
}  // namespace tessera
