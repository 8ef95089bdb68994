// `tessera plan --target`: XLA's compiler without a GPU, and what ends it. What `version` and
// `doctor` say of plug-ins.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class XlaPlan : public ProgramTest {
 protected:
  static Words ahead(const Words& more) {
    return Words{"plan"} + tiny_shape() + Words{"--device_type", "xla", "--target", "h100"} + more;
  }
  static std::string stub(const std::string& name) {
    return cat(XLA_STUBS, "/xla_stub_", name, ".so");
  }
  // What XLA's compiler needs is there by name, for plug-ins that do not get as far.
  void make_cuda_files() {
    make_directories(path("cuda/nvvm/libdevice"));
    make_directories(path("cuda/bin"));
    write("cuda/nvvm/libdevice/libdevice.10.bc", "");
    write("cuda/bin/ptxas", "");
  }
  void use_cuda_files() { ::setenv("CUDA_HOME", path("cuda").c_str(), 1); }
  // Last line of standard error that begins with the program's name, and all behind it.
  static std::string refusal(const ProgramResult& result) {
    const size_t at = result.err.rfind("tessera: ");
    return at == std::string::npos ? result.err : result.err.substr(at);
  }
};

TEST_F(XlaPlan, OptionsThatDoNotGoTogether) {
  const Words plan = Words{"plan"} + tiny_shape();
  ProgramResult other_device = run(plan + Words{"--target", "h100"});
  EXPECT_EQ(other_device.status, 2);
  expect_contains(other_device.message(), "--target h100 is for --device_type cuda or xla");
  ProgramResult nothing_to_save = run(plan + Words{"--save_executable", "step.pjrt"});
  EXPECT_EQ(nothing_to_save.status, 2);
  expect_contains(nothing_to_save.message(), "--save_executable is for");
  ProgramResult unknown = run(ahead({"--target", "h900"}));
  EXPECT_EQ(unknown.status, 2);
  expect_contains(unknown.message(), "--target");
  ProgramResult uneven = run(ahead({"--world", "12", "--ranks_per_host", "8"}));
  EXPECT_EQ(uneven.status, 1);
  expect_contains(uneven.err, "12 ranks (--world) on hosts of 8 (--ranks_per_host)");
}

TEST_F(XlaPlan, WithoutAPlugin) {
  make_directories(path("empty"));
  ProgramResult result = run(ahead({"--xla_plugin", "empty"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(refusal(result), "no plug-in of XLA for cuda: looked for xla_cuda_plugin.so in ");
  expect_contains(refusal(result), "tools/packages install xla_cuda");
  ProgramResult none = run(ahead({"--xla_plugin", "none.so"}));
  EXPECT_EQ(none.status, 1);
  expect_contains(refusal(none), "--xla_plugin 'none.so': no such file or directory");
}

TEST_F(XlaPlan, PluginsThatAreNone) {
  make_cuda_files();
  auto with = [&](const std::string& plugin) {
    ProgramResult result = run(ahead({"--xla_plugin", plugin}), [&] { use_cuda_files(); });
    EXPECT_EQ(result.status, 1) << result.err;
    return refusal(result);
  };
  write("text.so", "no library");
  expect_contains(with("text.so"), "cannot load XLA's plug-in: ");
  expect_contains(with(stub("major")), "interface 1.7, this program speaks 0.x");
  expect_contains(with(stub("short")), "lacks function number");
  expect_contains(with(stub("old")), "lacks function number 82");
  const std::string crashed = with(stub("crash"));
  expect_contains(crashed,
                  "compiling accumulate_first for h100: the process with XLA was ended by "
                  "signal 11 (");
  expect_contains(crashed, "Check failed: the stub goes no further");
}

TEST_F(XlaPlan, FiguresStandBesideThoseOfThePlan) {
  // An evaluation is one program, which takes XLA a second or two.
  ProgramResult result =
      run(ahead({"--world", "2", "--eval_only", "1", "--save_executable", "step.pjrt"}));
  if (result.status == 1 && (refusal(result).find("no plug-in") != std::string::npos ||
                             refusal(result).find("cannot compile for CUDA") != std::string::npos))
    GTEST_SKIP() << refusal(result);
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string& text = result.out;
  expect_contains(text, "\nXLA's programs for 2 x h100, 2 on a host, beside the plan");
  expect_contains(text, "\n  evaluate: ");
  expect_contains(text, "KiB, the arena\n");
  expect_contains(text, "\n    all_gathers              1   plan 4; XLA's take 4 tensors\n");
  expect_contains(text, "nothing was executed");
  expect_contains(text, "\n    saved as 'step.evaluate.pjrt', ");
  EXPECT_GT(read_file(path("step.evaluate.pjrt")).size(), 1000u);
}

TEST_F(XlaPlan, VersionAndDoctorSayWhatIsFound) {
  auto with = [&](const Words& words, const std::string& plugin) {
    return run(words, [&] { ::setenv("TESSERA_XLA_PLUGIN", plugin.c_str(), 1); });
  };
  ProgramResult version = with({"version"}, stub("old"));
  EXPECT_EQ(version.status, 0) << version.err;
  expect_contains(version.out, "\nXLA: cpu, interface 0.7, '" + stub("old") + "'\n");
  ProgramResult broken = with({"version"}, stub("crash"));
  EXPECT_EQ(broken.status, 0) << broken.err;
  expect_contains(broken.out, "'" + stub("crash") + "' does not load: ");
  ProgramResult doctor = with({"doctor", "--threads", "1"}, stub("crash"));
  EXPECT_EQ(doctor.status, 1) << doctor.err;
  expect_contains(doctor.out, "plug-in of XLA: '" + stub("crash") + "' does not load: ");
  ProgramResult sound = with({"doctor", "--threads", "1"}, stub("old"));
  expect_contains(sound.out, "\nplug-ins of XLA\n  ");
  expect_contains(sound.out, ": cpu, interface 0.7, '" + stub("old") + "'\n");
}

}  // namespace
}  // namespace tessera
