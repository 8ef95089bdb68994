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

TEST_F(Metrics, ArePlotted) {
  for (const char* seed : {"1", "2"}) {
    ProgramResult result = run(train({"--max_steps", "9", "--seed", seed, "--metrics_file",
                                      cat("run", seed), "--run_validation", "0"}));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  ProgramResult result = run({"plot", "run1", "run2", "--smooth", "0.5"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "loss\n");
  expect_contains(result.out, "── run1: loss\n");
  expect_contains(result.out, "╌╌ run2: loss\n");
  result = run({"plot", "run1", "--metrics", "loss", "tokens_per_second", "--plot_file", "a.html"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string page = read_file(path("a.html"));
  expect_contains(page, "<title>tokens_per_second</title>");
  expect_contains(page, "</svg>");
  EXPECT_EQ(run({"plot", "run1", "--plot_file", "a.svg"}).status, 0);
  EXPECT_TRUE(read_file(path("a.svg")).starts_with("<svg "));

  auto refused = [&](const Words& words, int status, const std::string& why) {
    ProgramResult refusal = run(words);
    EXPECT_EQ(refusal.status, status);
    expect_contains(refusal.message(), why);
  };
  refused({"plot"}, 2, "plot takes files of --metrics_file");
  refused({"plot", "run1", "--plot_file", "a.png"}, 2, "is to end in .svg or .html");
  refused({"plot", "run1", "--metrics", "los"}, 1,
          "--metrics los: 'run1' has none; it has batch, ");
  refused({"plot", "text.txt"}, 1, "'text.txt', line 1 is not one that --metrics_file wrote");
  refused({"plot", "none"}, 1, "none");
}

}  // namespace
}  // namespace tessera
