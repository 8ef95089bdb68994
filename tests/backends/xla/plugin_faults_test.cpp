// Plug-ins that are none or of another version, and processes that end: an error each, never a
// hang.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "backends/xla/ahead_of_time.h"
#include "backends/xla/child_process.h"
#include "backends/xla/client.h"
#include "backends/xla/installed_plugins.h"
#include "base/file.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera::xla {
namespace {

using std::chrono::seconds;

std::string stub(const std::string& name) { return cat(XLA_STUBS, "/xla_stub_", name, ".so"); }

// Loading it in a child.
void load(const std::string& path, seconds timeout = seconds(30)) {
  in_child_process("loading it", timeout, [&] { return Plugin(path).version(); });
}

TEST(ChildProcess, GivesWhatItWasAskedFor) {
  const std::string large(3 << 20, 'x');  // more than a pipe holds
  EXPECT_EQ(in_child_process("work", seconds(30),
                             [&] {
                               std::printf("not the result\n");
                               return large;
                             }),
            large);
  EXPECT_EQ(in_child_process("work", seconds(30), [] { return std::string(); }), "");
}

TEST(ChildProcess, ErrorsAreThrownHere) {
  EXPECT_EQ(user_error([] {
              in_child_process("work", seconds(30),
                               []() -> std::string { throw UserError("no such thing"); });
            }),
            "no such thing");
  EXPECT_EQ(message_of<DeviceError>([] {
              in_child_process("work", seconds(30),
                               []() -> std::string { throw std::runtime_error("broken"); });
            }),
            "work: broken");
}

TEST(ChildProcess, ItsEndIsAnErrorWithItsLastLines) {
  const std::string crashed = message_of<DeviceError>([] {
    in_child_process("compiling layers", seconds(30), [] {
      for (int i = 0; i < 100; ++i) std::printf("line %d\n", i);
      std::fflush(stdout);
      std::fprintf(stderr, "Check failed: a == b\n");
      ::raise(SIGSEGV);
      return std::string();
    });
  });
  expect_contains(crashed, "compiling layers: the process with XLA was ended by signal 11 (");
  expect_contains(crashed, "the last it printed:\n  line 93\n");
  expect_contains(crashed, "line 99\n  Check failed: a == b");
  const std::string aborted = message_of<DeviceError>(
      [] { in_child_process("work", seconds(30), []() -> std::string { std::abort(); }); });
  expect_contains(aborted, "ended by signal 6 (");
  expect_contains(aborted, "it printed nothing");
  const std::string left = message_of<DeviceError>(
      [] { in_child_process("work", seconds(30), []() -> std::string { ::_exit(3); }); });
  expect_contains(left, "work: the process with XLA ended with status 3");
}

TEST(ChildProcess, IsEndedWhereItHangs) {
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of<DeviceError>([] {
    in_child_process("work", seconds(5), []() -> std::string {
      std::printf("waiting for rank 3\n");
      std::fflush(stdout);
      for (;;) ::pause();
    });
  });
  EXPECT_EQ(message,
            "work: not done after 5 s, and was ended; the last it printed:\n  waiting for "
            "rank 3");
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(60));
}

TEST(PluginFaults, FilesThatAreNoPlugin) {
  expect_contains(user_error([] { load("/no/such/plugin.so"); }), "cannot load XLA's plug-in: ");
  const ScratchDirectory directory;
  const std::string text = (directory / "text.so").string();
  write_file_atomic(text, "no library at all, but some text");
  expect_contains(user_error([&] { load(text); }), "cannot load XLA's plug-in: " + text);
  expect_contains(user_error([] { load("libm.so.6"); }), "has no GetPjrtApi");
  // A library that was cut off while it was copied.
  const std::string whole = read_file(stub("old"));
  const std::string cut = (directory / "cut.so").string();
  write_file_atomic(cut, std::string_view(whole).substr(0, whole.size() / 3));
  EXPECT_ANY_THROW(load(cut));
}

TEST(PluginFaults, AFileOfTheCurrentDirectoryIsFoundByItsName) {
  const std::string version = in_child_process("loading it", seconds(30), [] {
    std::filesystem::current_path(XLA_STUBS);
    return Plugin("xla_stub_old.so").version();
  });
  EXPECT_EQ(version, "0.7");
}

TEST(PluginFaults, OtherVersionsOfTheInterface) {
  expect_contains(user_error([] { load(stub("major")); }),
                  "is a plug-in of interface 1.7, this program speaks 0.x");
  expect_contains(user_error([] { load(stub("tiny")); }), "is a plug-in of interface unknown");
  expect_contains(user_error([] { load(stub("null")); }), "is a plug-in of interface unknown");
  expect_contains(user_error([] { load(stub("short")); }),
                  "a plug-in of interface 0.7, lacks function number 3");
  load(stub("old"));
  expect_contains(user_error([] {
                    in_child_process("describing", seconds(30), [] {
                      const Plugin plugin(stub("old"));
                      const Topology topology(plugin, target_config("h100"), 1, 8);
                      return std::string();
                    });
                  }),
                  "lacks function number 82");
}

TEST(PluginFaults, ThoseThatCrashOrHangEndTheirChildOnly) {
  const std::string crashed = message_of<DeviceError>([] { load(stub("crash")); });
  expect_contains(crashed, "ended by signal 11");
  expect_contains(crashed, "Check failed: the stub goes no further");
  expect_contains(message_of<DeviceError>([] { load(stub("hang"), seconds(1)); }),
                  "not done after 1 s");
}

TEST(PluginFaults, TheListSaysWhatDoesNotLoad) {
  const char* before = std::getenv("TESSERA_XLA_PLUGIN");
  const std::string kept = before ? before : "";
  ::setenv("TESSERA_XLA_PLUGIN", stub("crash").c_str(), 1);
  const std::vector<InstalledPlugin> broken = installed_plugins();
  ASSERT_EQ(broken.size(), 1u);  // of a name that says nothing of its kind
  EXPECT_EQ(broken[0].path, stub("crash"));
  expect_contains(to_string(broken[0]),
                  "does not load: loading it: the process with XLA was ended");
  ::setenv("TESSERA_XLA_PLUGIN", stub("old").c_str(), 1);
  const std::vector<InstalledPlugin> sound = installed_plugins();
  ASSERT_EQ(sound.size(), 1u);
  EXPECT_EQ(to_string(sound[0]), "cpu, interface 0.7, '" + stub("old") + "'");
  ::setenv("TESSERA_XLA_PLUGIN", "/no/such.so", 1);
  const std::vector<InstalledPlugin> absent = installed_plugins();
  ASSERT_EQ(absent.size(), 1u);
  expect_contains(to_string(absent[0]), "TESSERA_XLA_PLUGIN '/no/such.so': no such file");
  before ? ::setenv("TESSERA_XLA_PLUGIN", kept.c_str(), 1) : ::unsetenv("TESSERA_XLA_PLUGIN");
}

// Processes of a job that have a GPU each meet over what the job gives them.
TEST(GpuProcesses, MeetInTheJob) {
  const Plugin plugin(stub("job"));
  std::map<std::string, std::string> values{{"hello", std::string("from\0 rank 0", 12)}};
  std::chrono::milliseconds waited{};
  const KeyValues job{
      .get =
          [&](const std::string& key, std::chrono::milliseconds timeout) {
            waited = timeout;
            if (!values.contains(key)) throw CommError("rank 0 did not set '" + key + "'");
            return values[key];
          },
      .find =
          [&](const std::string& key) {
            return values.contains(key) ? std::optional(values[key]) : std::nullopt;
          },
      .put = [&](const std::string& key, const std::string& value) { values[key] = value; }};
  const GpuProcess process{.rank = 5, .world_size = 16, .device = 3};
  {
    const Client client(plugin, process, job);
    EXPECT_EQ(client.num_devices(), 1);
  }
  EXPECT_EQ(waited, std::chrono::milliseconds(1500));
  EXPECT_EQ(values["options"], "node_id 5;num_nodes 16;visible_devices 3;");
  EXPECT_EQ(values["echo"], values["hello"]);
  EXPECT_EQ(values["missing"], "5");  // not found
  values.erase("hello");
  EXPECT_EQ(message_of<PluginError>([&] { Client(plugin, process, job); }),
            "finding XLA's devices: XLA says: rank 0 did not set 'hello'");
}

}  // namespace
}  // namespace tessera::xla
