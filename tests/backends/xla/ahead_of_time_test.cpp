// Programs compiled for GPUs on a machine without one, and executables that are cut off.
#include "backends/xla/ahead_of_time.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/xla/child_process.h"
#include "backends/xla/client.h"
#include "backends/xla/cuda_files.h"
#include "backends/xla/stablehlo.h"
#include "base/file.h"
#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "tests/backends/xla/xla_plugin.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera::xla {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// y = 2 all_gather(x), w = w + x: on 4 ranks.
StableHlo gathering(const Mesh& mesh) {
  Graph g(mesh);
  const AxisSet axes = mesh.all_axes();
  const TensorType type{{256, 8}, DType::kF32, axes};
  const Value x = g.input("x", InputKind::kArgument, type);
  const Value w = g.input("w", InputKind::kState, type);
  const Value whole = all_gather(g, x, axes, 0);
  g.output("y", add(g, whole, whole));
  g.update("w", add(g, x, w));
  return stablehlo(g);
}

class AheadOfTimeTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto plugin = plugin_of_tests(PluginKind::kCuda);
    if (!plugin) GTEST_SKIP() << "no plug-in of XLA for CUDA: tools/packages install xla_cuda";
    plugin_ = *plugin;
    try {
      find_cuda_files(cuda_roots(plugin_));
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  fs::path plugin_;
};

TEST_F(AheadOfTimeTest, GivesMemoryGathersAndTheExecutable) {
  const Mesh mesh({{"data", 4}});
  const StableHlo program = gathering(mesh);
  const AheadOfTime compiled =
      compile_ahead(plugin_, {"h100", 2, 2}, "gathering", program.text, {.keep_executable = true});
  EXPECT_EQ(compiled.memory.arguments, 2 * 256 * 8 * 4);
  EXPECT_GE(compiled.memory.results, 5 * 256 * 8 * 4);
  EXPECT_EQ(compiled.memory.aliased, 256 * 8 * 4);  // w
  EXPECT_EQ(compiled.gathers.ops, 1);
  EXPECT_EQ(compiled.gathers.tensors, 1);
  EXPECT_GT(compiled.seconds, 0);
  EXPECT_GT(compiled.executable.size(), 1000u);
  EXPECT_EQ(compiled.interface.substr(0, 2), "0.");
}

TEST_F(AheadOfTimeTest, WhatXlaRefusesIsAnErrorWithTheProgram) {
  const std::string message = message_of<DeviceError>([&] {
    compile_ahead(plugin_, {"h100", 1, 1}, "nonsense", "module { not MLIR");
  });
  expect_contains(message, "compiling nonsense for h100: ");
}

TEST_F(AheadOfTimeTest, DescriptionsThatAreWrong) {
  auto describe = [&](std::string_view config) {
    return message_of<DeviceError>([&] {
      in_child_process("describing", seconds(60), [&] {
        use_cuda_files(find_cuda_files(cuda_roots(plugin_)));
        const Plugin plugin(plugin_.string());
        const Topology topology(plugin, config, 1, 1);
        const Mesh mesh({{"data", 1}});
        const TopologyProgram program(topology, gathering(mesh).text, 1);
        return std::string();
      });
    });
  };
  expect_contains(describe("gpu_device_info { no such field }"), "describing");
  EXPECT_FALSE(describe("").empty());
}

TEST(AheadOfTime, UnknownTargetsAreRefused) {
  expect_contains(user_error([] {
                    compile_ahead("/none.so", {"h900", 1, 1}, "p", "");
                  }),
                  "no description of the GPU 'h900': there are those of h100, a100");
}

// XLA would end its process.
TEST(AheadOfTime, FilesOfCudaAreLookedForFirst) {
  const ScratchDirectory directory;
  const fs::path packages = directory / "packages";
  const fs::path plugin = packages / "jax_plugins/xla_cuda13/xla_cuda_plugin.so";
  const fs::path root = packages / "nvidia/cu13";
  const std::vector<fs::path> roots{cuda_roots(plugin)[0]};
  const std::string nothing = user_error([&] { find_cuda_files(roots); });
  expect_contains(nothing,
                  "without nvvm/libdevice/libdevice.10.bc, and libnvJitLink.so.13 or ptxas");
  expect_contains(nothing, "looked in '" + root.string() + "'");
  expect_contains(nothing, "tools/packages install xla_cuda");
  auto file = [](const fs::path& path) {
    make_directories(path.parent_path());
    write_file_atomic(path, "");
  };
  file(root / "nvvm/libdevice/libdevice.10.bc");
  expect_contains(user_error([&] { find_cuda_files(roots); }),
                  "without libnvJitLink.so.13 or ptxas beside its device library");
  file(root / "bin/ptxas");
  EXPECT_EQ(find_cuda_files(roots).root, root);
  EXPECT_EQ(find_cuda_files(roots).ptxas, root / "bin/ptxas");
  EXPECT_TRUE(find_cuda_files(roots).nvjitlink.empty());
}

// HloModuleProto { computations { instructions { opcode, operands } } }, by hand.
TEST(HloModule, CountsGathers) {
  auto field = [](int number, const std::string& bytes) {
    const int key = number << 3 | 2;
    std::string head;
    if (key > 127) head += static_cast<char>((key & 127) | 128);
    head += static_cast<char>(key > 127 ? key >> 7 : key);
    return head + static_cast<char>(bytes.size()) + bytes;
  };
  auto instruction = [&](const std::string& opcode, const std::string& operands) {
    return field(2, field(1, "name") + field(2, opcode) + field(36, operands));
  };
  const std::string computation =
      field(3, instruction("all-gather", "\x01") + instruction("add", "\x02\x03") +
                   instruction("all-gather-start", "\x85\x01\x02\x03") +
                   instruction("all-gather-done", "\x04"));
  const std::string module = field(1, "module") + computation;
  EXPECT_EQ(count_gathers(module, false).ops, 2);
  EXPECT_EQ(count_gathers(module, false).tensors, 4);
  EXPECT_EQ(count_gathers(field(1, module), true).ops, 2);
  for (size_t size = 1; size < module.size(); ++size) {
    const std::string cut = module.substr(0, size);
    try {
      EXPECT_LE(count_gathers(cut, false).ops, 2);
    } catch (const UserError& error) {
      expect_contains(error.what(), "cut off or malformed");
    }
  }
}

// On XLA's CPU, which can load what it compiled.
TEST_F(XlaTest, ExecutablesThatAreCutOffAreErrors) {
  const fs::path path = plugin_;
  const std::string whole = in_child_process("compiling", seconds(120), [&] {
    const Plugin plugin(path.string());
    const Client client(plugin, 1);
    return client.compile(gathering(Mesh({{"data", 1}})).text, 1)->serialized();
  });
  ASSERT_GT(whole.size(), 100u);
  auto load = [&](const std::string& bytes) {
    return in_child_process("loading", seconds(120), [&] {
      const Plugin plugin(path.string());
      const Client client(plugin, 1);
      client.load(bytes);
      return std::string("loaded");
    });
  };
  EXPECT_EQ(load(whole), "loaded");
  for (size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1})
    EXPECT_FALSE(message_of<DeviceError>([&] { load(whole.substr(0, size)); }).empty()) << size;
  expect_contains(message_of<DeviceError>([&] { load("no executable"); }), "loading");
}

}  // namespace
}  // namespace tessera::xla
