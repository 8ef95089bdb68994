#include "ir/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace tessera {
namespace {

using Groups = std::vector<std::vector<int>>;

Mesh mesh_2_3_2() { return Mesh({{"replicate", 2}, {"shard", 3}, {"tp", 2}}); }

TEST(Mesh, IndexCountsTheOutermostAxisSlowest) {
  Mesh mesh = mesh_2_3_2();
  AxisSet shard = mesh.axis("shard"), tp = mesh.axis("tp"), replicate = mesh.axis("replicate");
  EXPECT_EQ(mesh.world_size(), 12);
  EXPECT_EQ(mesh.size(shard | tp), 6);
  EXPECT_EQ(mesh.size({}), 1);
  int rank = (1 * 3 + 2) * 2 + 1;  // replicate 1, shard 2, tp 1
  EXPECT_EQ(mesh.index(rank, replicate), 1);
  EXPECT_EQ(mesh.index(rank, shard), 2);
  EXPECT_EQ(mesh.index(rank, tp), 1);
  EXPECT_EQ(mesh.index(rank, shard | tp), 2 * 2 + 1);
  EXPECT_EQ(mesh.index(rank, replicate | tp), 1 * 2 + 1);
  EXPECT_EQ(mesh.index(rank, {}), 0);
  for (int r = 0; r < 12; ++r) EXPECT_EQ(mesh.index(r, replicate | shard | tp), r);
}

TEST(Mesh, GroupsHoldRanksThatDifferOnlyAlongTheSet) {
  Mesh mesh = mesh_2_3_2();
  EXPECT_EQ(mesh.groups(mesh.axis("tp")),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
  EXPECT_EQ(mesh.groups(mesh.axis("shard")),
            (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(mesh.groups(mesh.axis("replicate") | mesh.axis("tp")),
            (Groups{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
  for (uint32_t bits = 0; bits < 8; ++bits) {
    std::set<int> seen;
    for (const std::vector<int>& group : mesh.groups({bits})) {
      for (size_t i = 0; i < group.size(); ++i) {
        EXPECT_EQ(mesh.index(group[i], {bits}), static_cast<int>(i));
        EXPECT_TRUE(seen.insert(group[i]).second);
      }
    }
    EXPECT_EQ(seen.size(), 12u);
  }
}

TEST(Mesh, OfOneRankHasNoAxes) {
  Mesh mesh;
  EXPECT_EQ(mesh.world_size(), 1);
  EXPECT_EQ(mesh.groups({}), (Groups{{0}}));
  EXPECT_EQ(mesh.to_string({}), "{}");
}

TEST(Mesh, RefusesWrongAxes) {
  EXPECT_THROW(mesh_2_3_2().axis("pipeline"), InternalError);
  EXPECT_THROW(Mesh({{"tp", 0}}), InternalError);
  EXPECT_THROW(Mesh({{"tp", 2}, {"tp", 2}}), InternalError);
  EXPECT_EQ(mesh_2_3_2().to_string(mesh_2_3_2().axis("shard") | mesh_2_3_2().axis("tp")),
            "{shard, tp}");
}

TEST(AxisSet, IsASet) {
  AxisSet a{0b011}, b{0b110};
  EXPECT_EQ((a | b).bits, 0b111u);
  EXPECT_EQ((a - b).bits, 0b001u);
  EXPECT_TRUE(a.overlaps(b));
  EXPECT_FALSE(a.contains(b));
  EXPECT_TRUE(a.contains({}));
  EXPECT_FALSE(a.overlaps({}));
}

}  // namespace
}  // namespace tessera
