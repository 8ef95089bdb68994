// `tessera plan --device_type cuda`: GPUs by their data sheets, on machines without one.
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class CudaPlanCommand : public ProgramTest {
 protected:
  ProgramResult plan(const Words& more) {
    return run(Words{"plan"} + tiny_shape() + Words{"--device_type", "cuda"} + more);
  }
  ProgramResult plan_7b(const Words& more) {
    return run(Words{"plan", "--model_name", "llama2_7b", "--device_type", "cuda",
                     "--max_context_width", "4096"} +
               more);
  }
  // Of the same width, with few layers.
  ProgramResult plan_wide(const Words& more) { return plan_7b(Words{"--num_layers", "2"} + more); }
  static double number(const std::string& text, const std::string& expression) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(text, found, std::regex(expression))) << expression << text;
    return found.size() > 1 ? std::stod(found[1].str()) : 0;
  }
};

TEST_F(CudaPlanCommand, SaysOfEveryLineHowWellItIsKnown) {
  const std::string text = plan({"--world", "2"}).out;
  expect_contains(text, "\nDevice: NVIDIA H100 SXM, 80 GB, by its data sheet; attention by ");
  expect_contains(text, " (another GPU: --target)\n\nMemory of one rank");
  expect_lacks(plan({"--target", "h100"}).out, "--target");
  const size_t begin = text.find("\nMemory of one rank"), end = text.find("\nPrograms:");
  ASSERT_LT(begin, end);
  const std::string lines = text.substr(begin, end - begin);
  for (std::string_view line : split(trim(lines), '\n')) {
    if (!line.starts_with("  ")) continue;
    EXPECT_TRUE(std::regex_search(std::string(line), std::regex("  (exact|estimate)"))) << line;
  }
  for (const char* what :
       {"CUDA context", "buffers of NCCL", "on the GPU", "exact without cublasLt"})
    expect_contains(lines, what);
  expect_lacks(plan({}).out, "NCCL");
  expect_lacks(text, "Without a kernel");
}

TEST_F(CudaPlanCommand, JudgesByTheMemoryOfTheGpu) {
  ProgramResult eight = plan_7b({"--world", "8"});
  EXPECT_EQ(eight.status, 0) << eight.err;
  expect_contains(eight.out, "\nFits in the 78.0 GiB of an NVIDIA H100 SXM, 80 GB (estimate: ");
  ProgramResult one = plan_7b({});
  EXPECT_EQ(one.status, 1);
  expect_contains(one.out, " more than the 78.0 GiB of an NVIDIA H100 SXM, 80 GB (estimate: ");
  expect_contains(one.out, "\nIt fits with any of these");
  // 101 GiB of state.
  ProgramResult larger = plan_7b({"--target", "h200"});
  EXPECT_EQ(larger.status, 0) << larger.out;
  expect_contains(larger.out, "\nFits in the 139.0 GiB of an NVIDIA H200 SXM, 141 GB");
  // A limit that is given is of what is planned, as for every device.
  ProgramResult given = plan_7b({"--world", "8", "--memory", "10GiB"});
  EXPECT_EQ(given.status, 1);
  expect_contains(given.out, " more than --memory 10.0 GiB\n");
  expect_lacks(given.out, "Fits in the ");
}

TEST_F(CudaPlanCommand, ARooflineFollowsTheDataSheet) {
  const std::string all = R"(\n  together .* ([0-9.]+) ms)",
                    products = R"(\n  linear_dx .* ([0-9.]+) ms)",
                    norms = R"(\n  swiglu .* ([0-9.]+) ms)";
  const std::string h100 = plan_wide({"--world", "8"}).out,
                    h200 = plan_wide({"--world", "8", "--target", "h200"}).out,
                    a100 = plan_wide({"--world", "8", "--target", "a100"}).out;
  for (const std::string& text : {h100, h200, a100}) {
    expect_contains(text, "\nRoofline: no speed is claimed. ");
    // No op is faster than its arithmetic.
    EXPECT_GE(number(text, all), number(text, R"(\n  arithmetic +([0-9.]+) ms)"));
  }
  EXPECT_EQ(number(h200, products), number(h100, products));
  EXPECT_NEAR(number(a100, products) / number(h100, products), 989.0 / 312, 1e-3);
  EXPECT_NEAR(number(h100, norms) / number(h200, norms), 4.8 / 3.35, 1e-3);
  EXPECT_NEAR(number(a100, norms) / number(h100, norms), 3.35 / 2.04, 1e-3);
  expect_contains(h100, "  exchanges, an estimate ");
  expect_contains(a100, "no model of them for this GPU");
  expect_lacks(plan_wide({}).out, "exchanges");
  expect_lacks(run(Words{"plan"} + tiny_shape()).out, "Roofline");
}

TEST_F(CudaPlanCommand, ExchangesAreSlowerBetweenHosts) {
  const std::string time = R"(exchanges, an estimate .* ([0-9.]+) ms, beside)";
  auto exchanges = [&](const Words& more) { return number(plan_wide(more).out, time); };
  const double within = exchanges({"--world", "8"}),
               between = exchanges({"--world", "8", "--ranks_per_host", "4"});
  EXPECT_GT(between, within);
  EXPECT_GT(exchanges({"--world", "512"}), exchanges({"--world", "64"}));
}

// What cannot be faster is not slower than the estimate of the same page.
TEST_F(CudaPlanCommand, BoundsOfExchangesLieBelowTheirEstimate) {
  const std::string hosts = R"(\n  sending to other hosts +([0-9.]+) ms)";
  for (const Words& more :
       {Words{"--world", "64"}, Words{"--world", "64", "--ranks_per_host", "2"},
        Words{"--world", "64", "--tensor_parallel_degree", "8"},
        Words{"--world", "16", "--sharding_strategy", "hsdp"}, Words{"--world", "8"}}) {
    SCOPED_TRACE(join(more, " "));
    const std::string text = plan_wide(more).out;
    const double estimate = number(text, R"(exchanges, an estimate .* ([0-9.]+) ms, beside)");
    if (more != Words{"--world", "8"}) {
      EXPECT_LT(number(text, hosts), estimate);
    }
    EXPECT_LT(number(text, R"(\n  sending within a host +([0-9.]+) ms)"), estimate);
  }
  // Sums in rank order go to every peer.
  const Words two_hosts{"--world", "16"};
  const double rings = number(plan_wide(two_hosts).out, hosts),
               direct = number(plan_wide(two_hosts + Words{"--reproducible", "1"}).out, hosts);
  EXPECT_GT(direct, 2 * rings);
}

TEST_F(CudaPlanCommand, TargetsThatAreNone) {
  ProgramResult unknown = plan({"--target", "h900"});
  EXPECT_EQ(unknown.status, 2);
  expect_contains(unknown.message(), "--target");
  ProgramResult cpu = run(Words{"plan"} + tiny_shape() + Words{"--target", "h100"});
  EXPECT_EQ(cpu.status, 2);
  expect_contains(cpu.message(), "--target h100 is for --device_type cuda or xla");
  ProgramResult xla =
      run(Words{"plan"} + tiny_shape() + Words{"--device_type", "xla", "--target", "h200"});
  EXPECT_EQ(xla.status, 2);
  expect_contains(xla.message(), "--target h200 is for --device_type cuda");
  ProgramResult saves = plan({"--target", "h100", "--save_executable", "step.pjrt"});
  EXPECT_EQ(saves.status, 2);
  expect_contains(saves.message(), "--save_executable is for --device_type xla");
}

TEST_F(CudaPlanCommand, KernelsAreExplained) {
  const std::string text = run(Words{"explain", "kernels"} + tiny_shape() +
                               Words{"--device_type", "cuda", "--bf16", "1"})
                               .out;
  expect_contains(text, "Device: NVIDIA H100");
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(\nlinear +cublasLt )"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(\nrms_norm +rms_norm cuda )"))) << text;
  // Registers, shared bytes, nothing spilled, occupancy: in the plan too, of the GPU that it is
  // for.
  const std::regex row(
      R"(\n  rms_norm +rms_norm_bf16 +\d+ +\d+ +[1-9]\d+ +32 +0 +\d+ x \d+ +\d+ %)");
  for (const std::string& all : {text, plan({"--bf16", "1", "--target", "a100"}).out}) {
    expect_contains(all, "as nvcc made them for compute capability ");
    EXPECT_TRUE(std::regex_search(all, row)) << all;
    expect_lacks(all, "not in the table");
  }
  expect_contains(text, "compute capability 9.0;");
  expect_contains(plan({"--target", "a100"}).out, "compute capability 8.0;");
}

}  // namespace
}  // namespace tessera
