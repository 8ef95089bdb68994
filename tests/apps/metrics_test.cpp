// What a run writes for people and programs to look at.
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Metrics : public ProgramTest {};

TEST_F(Metrics, GoToTensorBoardAndReports) {
  ProgramResult result = run(train({"--max_steps", "5", "--tensorboard_dir", "runs/a", "runs/b",
                                    "--report_interval", "2", "--peak_tflops_per_gpu", "1"}));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::string directory : {"runs/a", "runs/b"}) {
    expect_contains(result.err, cat("Writing metrics for tensorboard to ", directory, "."));
    const std::set<std::string> files = names(directory);
    ASSERT_EQ(files.size(), 1u);
    const std::string events = read_file(path(cat(directory, "/", *files.begin())));
    size_t steps = 0;
    for (size_t at = 0; (at = events.find("Loss/train", at)) != std::string::npos; ++at) ++steps;
    EXPECT_EQ(steps, 5u);
    expect_contains(events, "max_steps | 5 |");
  }
  expect_contains(result.err, "Report:\nstep: 2\ntokens seen: ");
  expect_contains(result.err, "Report:\nstep: 4\ntokens seen: ");
  EXPECT_EQ(result.err.find("step: 5\n"), std::string::npos);
}

TEST_F(Metrics, ADirectoryThatCannotBeMadeIsAnErrorBeforeTheFirstStep) {
  write("file", "");
  ProgramResult result = run(train({"--max_steps", "5", "--tensorboard_dir", "file/runs"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "cannot make 'file/runs' for TensorBoard");
  EXPECT_EQ(result.err.find("Batch 0"), std::string::npos);
}

}  // namespace
}  // namespace tessera
