// `tessera explain` as a user meets it: its numbers are those of `tessera plan`.
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class ExplainCommand : public ProgramTest {
 protected:
  ProgramResult explain(const Words& more) {
    return run(Words{"explain"} + more + tiny_shape() + fixed());
  }
  nlohmann::json json(const Words& more) {
    ProgramResult result = explain(more + Words{"--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  std::string plan(const Words& more = {}) {
    return run(Words{"plan"} + tiny_shape() + fixed() + more).out;
  }
  // The same plan on every machine.
  static Words fixed() { return {"--cpu_isa", "avx2", "--threads", "2"}; }
  static std::string match(const std::string& text, const std::string& expression) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(text, found, std::regex(expression))) << expression << text;
    return found.size() > 1 ? found[1].str() : "";
  }
};

TEST_F(ExplainCommand, HasTheNumbersOfThePlan) {
  const std::string planned = plan(), text = explain({}).out;
  const std::string total = match(planned, R"( (\d+) bytes\n)");
  expect_contains(text, "(" + total + " bytes)");
  const auto memory = json({"memory"})["memory"];
  EXPECT_EQ(memory["total"].dump(), total);
  EXPECT_EQ(memory["arena"]["bytes"].dump(),
            match(planned, cat(memory["arena"]["program"].get<std::string>(),
                               R"(: arena [^(]*\((\d+) bytes\))")));
  // Every kind at the peak stands in the plan with the same bytes.
  for (const auto& kind : memory["by_kind"])
    expect_contains(planned, format("  %-28s %12s", kind["name"].get<std::string>().c_str(),
                                    format_bytes(kind["bytes"].get<int64_t>()).c_str()));
}

TEST_F(ExplainCommand, OtherOptionsAreWhatThePlanSaysOfThem) {
  const auto memory = json({"memory"})["memory"];
  ASSERT_FALSE(memory["other_options"].empty());
  const auto near = memory["near"].get<int64_t>();
  for (const auto& other : memory["other_options"]) {
    const std::string options = other["options"];
    Words words;
    for (std::string_view word : split(options, ' ')) words.emplace_back(word);
    const std::string planned = plan(words);
    if (other["far"].get<int64_t>() != 0) continue;
    EXPECT_EQ(match(planned, R"( (\d+) bytes\n)"),
              std::to_string(near + other["near"].get<int64_t>()))
        << options;
  }
}

TEST_F(ExplainCommand, NamesPeakKernelsAndPasses) {
  ProgramResult all = explain({"peak", "kernels", "passes"});
  ASSERT_EQ(all.status, 0) << all.err;
  expect_contains(plan(), match(all.out, R"(live at node \d+ of \d+, ([a-z_]+) in )"));
  expect_contains(all.out, "\nWhat runs around it:\n");
  EXPECT_EQ(match(all.out, R"(\nrms_norm +(rms_norm avx2) )"), "rms_norm avx2");
  expect_contains(all.out, "Every composite has a kernel: none was decomposed.");
  for (const char* isa : {"portable", "avx2", "avx512", "avx512_bf16", "amx"})
    match(all.out, cat("\n  ", isa, " +arena +\\S+ \\S+, nothing decomposed"));
  expect_contains(all.out, "1 linear_cross_entropy forward (head)");
}

TEST_F(ExplainCommand, NamesWhatNoKernelTook) {
  ProgramResult wide = run(Words{"explain", "kernels"} + tiny_shape() + fixed() +
                           Words{"--hidden_width", "640", "--num_heads", "2"});
  expect_contains(wide.out, "\n  attention x 6: heads of at most 256 elements");
}

TEST_F(ExplainCommand, FindsNodesByTheirName) {
  ProgramResult found = explain({"layers.1.mlp"});
  ASSERT_EQ(found.status, 0) << found.err;
  expect_contains(found.out, "swiglu in layers.1.mlp (forward): kernel swiglu avx2");
  expect_lacks(found.out, "in layers.0");
  ProgramResult wrong = explain({"layers.1.mpl"});
  EXPECT_EQ(wrong.status, 1);
  expect_contains(wrong.message(), "did you mean 'layers.1.mlp'?");
}

TEST_F(ExplainCommand, ExplainsOtherDevicesAndRefusesFamiliesWithoutAGraph) {
  ProgramResult cuda = explain({"memory", "kernels", "--device_type", "cuda"});
  EXPECT_EQ(cuda.status, 0) << cuda.err;
  expect_contains(cuda.out, "with the most that libraries may take");
  expect_lacks(cuda.out, "With --cpu_isa");
  const ProgramResult xla = explain({"memory", "kernels", "--device_type", "xla"});
  expect_contains(xla.out, "Its compiler makes code of its own of them");
  expect_lacks(xla.out, "Every composite has a kernel");
  expect_lacks(xla.out, "cpu_offload");
  for (const ProgramResult& result : {cuda, xla})
    expect_lacks(result.out, "--target");  // is of plan alone
  expect_contains(xla.out, "an estimate without workspaces");
  ProgramResult mixtral = run({"explain", "--model_name", "mixtral_8x7b"});
  EXPECT_EQ(mixtral.status, 1);
  expect_contains(mixtral.message(), "not built yet");
}

}  // namespace
}  // namespace tessera
