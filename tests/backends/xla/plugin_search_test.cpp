// Where plug-ins are looked for. None is loaded here.
#include "backends/xla/plugin_search.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera::xla {
namespace {

namespace fs = std::filesystem;

class PluginSearch : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("TESSERA_XLA_PLUGIN")) variable_ = value;
    ::unsetenv("TESSERA_XLA_PLUGIN");
    ::unsetenv("PJRT_DEVICE");
  }
  void TearDown() override {
    ::unsetenv("PJRT_DEVICE");
    ::unsetenv("TESSERA_XLA_PLUGIN");
    if (!variable_.empty()) ::setenv("TESSERA_XLA_PLUGIN", variable_.c_str(), 1);
  }
  fs::path file(const fs::path& name) {
    const fs::path path = directory_ / name;
    make_directories(path.parent_path());
    write_file_atomic(path, "no library");
    return path;
  }
  std::string directory(const std::string& name) { return (directory_ / name).string(); }

 private:
  ScratchDirectory directory_;
  std::string variable_;
};

TEST_F(PluginSearch, TheOptionNamesALibraryOrWhereItWasInstalled) {
  const fs::path own = file("own.so");
  EXPECT_EQ(find_plugin(own, PluginKind::kCpu), own);
  EXPECT_EQ(find_plugin(own, PluginKind::kCuda), own);
  const fs::path cpu =
      file("venv/lib/python3.11/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
  const fs::path cuda =
      file("venv/lib/python3.11/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  EXPECT_EQ(find_plugin(directory("venv"), PluginKind::kCpu), cpu);
  EXPECT_EQ(find_plugin(directory("venv"), PluginKind::kCuda), cuda);
  EXPECT_EQ(find_plugin(directory("venv/lib/python3.11/site-packages"), PluginKind::kCuda), cuda);
}

TEST_F(PluginSearch, TheVariableCountsWithoutTheOption) {
  const fs::path cpu = file("a/xla_cpu_pjrt.so");
  const fs::path other = file("b/xla_cpu_pjrt.so");
  ::setenv("TESSERA_XLA_PLUGIN", cpu.c_str(), 1);
  EXPECT_EQ(find_plugin("", PluginKind::kCpu), cpu);
  EXPECT_EQ(find_plugin(other, PluginKind::kCpu), other);
  // It is for one kind, by its name: another is looked for elsewhere.
  EXPECT_FALSE(plugin_if_any("", PluginKind::kCuda));
}

TEST_F(PluginSearch, ErrorsSayWhereItWasLookedFor) {
  expect_contains(user_error([&] { find_plugin(directory("none"), PluginKind::kCpu); }),
                  "--xla_plugin '" + directory("none") + "': no such file or directory");
  ::setenv("TESSERA_XLA_PLUGIN", "/no/such.so", 1);
  expect_contains(user_error([] { find_plugin("", PluginKind::kCpu); }),
                  "TESSERA_XLA_PLUGIN '/no/such.so': no such file");
  const fs::path cpu = file("xla_cpu_pjrt.so");
  ::setenv("TESSERA_XLA_PLUGIN", cpu.c_str(), 1);
  const std::string message = user_error([] { find_plugin("", PluginKind::kCuda); });
  expect_contains(message,
                  "no plug-in of XLA for cuda: looked for xla_cuda_plugin.so in "
                  "TESSERA_XLA_PLUGIN '" +
                      cpu.string() + "', '");
  expect_contains(message, "tools/packages install xla_cuda");
  expect_contains(user_error([&] { find_plugin(cpu, PluginKind::kCuda); }),
                  "looked for xla_cuda_plugin.so in --xla_plugin '" + cpu.string() + "'; get it");
}

TEST_F(PluginSearch, TheVariableOfPyTorchChoosesTheKind) {
  EXPECT_EQ(kind_of_environment(), PluginKind::kCpu);
  ::setenv("PJRT_DEVICE", "CUDA", 1);
  EXPECT_EQ(kind_of_environment(), PluginKind::kCuda);
  ::setenv("PJRT_DEVICE", "NEURON", 1);
  expect_contains(user_error([] { kind_of_environment(); }), "PJRT_DEVICE=NEURON");
}

}  // namespace
}  // namespace tessera::xla
