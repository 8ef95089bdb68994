#include "passes/pass_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "ir/printer.h"
#include "ops/primitive/elementwise.h"
#include "passes/canonicalize.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

Graph some_graph() {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{4}, DType::kF32});
  unary(g, UnaryKind::kExp, x);  // dead
  g.output("y", unary(g, UnaryKind::kNeg, x));
  return g;
}

Graph same(const Graph& g) { return g; }

std::vector<Pass> some_passes() {
  return {{"precision", same}, {"canonicalize", canonicalize}, {"reorder", same}};
}

template <class E>
std::string refusal(PassOptions options, const std::vector<Pass>& passes = some_passes()) {
  return message_of<E>([&] { PassRunner(std::move(options)).run("step", some_graph(), passes); });
}

TEST(PassRunner, RunsInOrderAndTimesEachPass) {
  PassRunner runner({});
  Graph g = runner.run("step", some_graph(), some_passes());
  EXPECT_EQ(g.nodes().size(), 2u);
  runner.run("apply", g, {{"canonicalize", canonicalize}});
  ASSERT_EQ(runner.timings().size(), 4u);
  EXPECT_EQ(runner.timings()[1].pass, "step.canonicalize");
  EXPECT_EQ(runner.timings()[1].nodes_before, 3u);
  EXPECT_EQ(runner.timings()[1].nodes_after, 2u);
  EXPECT_EQ(runner.timings()[3].pass, "apply.canonicalize");
  for (const PassTiming& t : runner.timings()) EXPECT_GE(t.seconds, 0);
}

TEST(PassRunner, SwitchesOptionalPassesOff) {
  PassRunner runner({{"canonicalize"}, {}});
  EXPECT_EQ(to_string(runner.run("step", some_graph(), some_passes())), to_string(some_graph()));
  EXPECT_EQ(runner.timings().size(), 2u);
}

TEST(PassRunner, RefusesNamesThatCannotBeSwitchedOff) {
  const std::string names = join(kOptionalPasses, ", ");
  EXPECT_EQ(refusal<UserError>({{"fusion"}, {}}),
            cat("--disable_pass: there is no pass 'fusion'; can be disabled: ", names));
  EXPECT_EQ(
      refusal<UserError>({{"precision"}, {}}),
      cat("--disable_pass: 'precision' is needed for a right result; can be disabled: ", names));
  EXPECT_THROW(PassRunner({{"fusion"}, {}}).run("step", some_graph(), some_passes()), UserError);
}

TEST(PassRunner, ADisabledPassNeedNotBeInEveryProgram) {
  PassRunner runner({{"canonicalize"}, {}});
  runner.run("apply", some_graph(), {{"precision", same}});
  EXPECT_EQ(to_string(runner.run("step", some_graph(), some_passes())), to_string(some_graph()));
}

TEST(PassRunner, VerifiesAfterEveryPassAndNamesIt) {
  std::vector<Pass> passes = some_passes();
  passes.push_back({"broken", [](const Graph& g) {
                      Graph bad = g;
                      bad.output("y", bad.outputs()[0].value);
                      return bad;
                    }});
  EXPECT_EQ(refusal<InternalError>({}, passes),
            "graph verifier, step after broken: output 'y' is missing or given twice");
}

TEST(PassRunner, WritesTheGraphAfterEveryPass) {
  ScratchDirectory directory;
  std::filesystem::path folder = directory / "dumps";
  PassRunner runner({{"canonicalize"}, folder});
  Graph g = runner.run("step", some_graph(), some_passes());
  runner.run("apply", g, {{"canonicalize", canonicalize}, {"reorder", same}});
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{"apply.03_built.txt", "apply.04_reorder.txt",
                                             "step.00_built.txt", "step.01_precision.txt",
                                             "step.02_reorder.txt"}));
  EXPECT_EQ(read_file(folder / "step.00_built.txt"), to_string(some_graph()));
  EXPECT_EQ(read_file(folder / "step.02_reorder.txt"), to_string(g));
}

TEST(PassRunner, WritesPagesWhereTheyAreAskedFor) {
  ScratchDirectory directory;
  PassOptions options{{}, directory / "dumps", DumpFormat::kHtml};
  PassRunner(options).run("step", some_graph(), some_passes());
  const std::string built = read_file(directory / "dumps" / "step.00_built.html");
  EXPECT_NE(built.find("<title>step after built</title>"), built.npos);
  EXPECT_NE(built.find("\"compared\":false"), built.npos);
  const std::string page = read_file(directory / "dumps" / "step.02_canonicalize.html");
  EXPECT_NE(page.find("\"compared\":true"), page.npos);
}

TEST(PassRunner, AnObserverSeesEveryPassThatRan) {
  std::vector<std::string> seen;
  PassOptions options;
  options.disabled = {"canonicalize"};
  options.observer = [&](const PassEvent& event) {
    seen.push_back(cat(event.program, ".", event.pass.name, " ", event.before.nodes().size(),
                       " -> ", event.after.nodes().size()));
    EXPECT_GE(event.seconds, 0);
  };
  PassRunner(options).run("step", some_graph(), some_passes());
  EXPECT_EQ(seen, (std::vector<std::string>{"step.precision 3 -> 3", "step.reorder 3 -> 3"}));
}

}  // namespace
}  // namespace tessera
