// State that a model's forward pass updates, in whole jobs.
#include <gtest/gtest.h>

#include "tests/passes/running_maximum.h"
#include "tests/programs/sharding_cells.h"

namespace tessera {
namespace {

double highest(const LockstepJob& job) {
  double highest = 0;
  for (const std::vector<double>& rank : job.state("largest"))
    highest = std::max(highest, rank.at(0));
  return highest;
}

// The ranks keep the maximum of what they saw: together they saw what one rank sees.
TEST(ModelState, IsThatOfOneRankOnAnyMesh) {
  const std::vector<Cell>& cells = covering_cells().rows();
  for (size_t i = 0; i < cells.size(); i += 4) {
    SCOPED_TRACE(name_of(cells[i]));
    CellJob job = job_of(cells[i]), alone = job.on_one_rank();
    LockstepJob ranks(job.model, job.options, job.micro_batches, with_running_maximum);
    LockstepJob one(alone.model, alone.options, alone.micro_batches, with_running_maximum);
    double before = 0;
    for (int64_t step = 0; step < 2; ++step) {
      ranks.step(step);
      one.step(step);
      EXPECT_GT(highest(one), 0);
      EXPECT_NEAR(highest(ranks), highest(one), 1e-10);
      EXPECT_GE(highest(one), before);
      before = highest(one);
    }
    double trained = highest(ranks);
    for (int64_t step = 2; step < 5; ++step) ranks.evaluate(step);
    EXPECT_EQ(highest(ranks), trained) << "a validation batch trains nothing";
  }
}

}  // namespace
}  // namespace tessera
