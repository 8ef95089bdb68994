// What .vscode/ starts is what it says, with the program of this build in place of the debugger's.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/apps/program_fixture.h"
#include "tests/backends/xla/xla_plugin.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kSource = TESSERA_SOURCE_DIR;
constexpr const char* kProgram = "${workspaceFolder}/build/debug/tessera";

Json read_json(const std::string& name) {
  return Json::parse(read_file(kSource / ".vscode" / name));  // strict: no comments
}

class Debugging : public ProgramTest {
 protected:
  // Starts the program in the workspace.
  ProgramResult run_there(Words words, const std::string& path = "") {
    for (std::string& word : words) {
      if (word == kProgram) word = TESSERA_PROGRAM;
    }
    return run(words, [&] {
      std::string all = cat(path, ":", std::getenv("PATH"));
      if (!path.empty()) ::setenv("PATH", all.c_str(), 1);
      if (::chdir(kSource.c_str()) != 0) ::_exit(126);
    });
  }
  // Later options win over those of the file: nothing is written to the workspace.
  Words short_run() const {
    const auto plugin = xla::plugin_of_tests();
    return {cat("--xla_plugin=", plugin ? plugin->string() : ""), "--max_steps=2",
            "--checkpoint_dir=None", cat("--cache_dir=", path("cache").string())};
  }
};

TEST_F(Debugging, LaunchConfigurationsRun) {
  const Json launch = read_json("launch.json"), all_tasks = read_json("tasks.json");
  std::set<std::string> tasks, commands;
  for (const Json& task : all_tasks.at("tasks")) tasks.insert(task.at("label"));
  for (const Json& configuration : launch.at("configurations")) {
    SCOPED_TRACE(configuration.at("name"));
    EXPECT_EQ(configuration.at("program"), kProgram);
    EXPECT_EQ(configuration.at("MIMode"), "gdb");
    if (configuration.contains("preLaunchTask")) {
      EXPECT_TRUE(tasks.contains(configuration.at("preLaunchTask")));
    }
    if (!configuration.contains("args")) continue;  // it joins a process
    Words words = configuration.at("args");
    commands.insert(words.at(0));
    ProgramResult result = run_there(words.at(0) == "train" ? words + short_run() : words);
    // Of a device that is not here it says so.
    const bool cuda = std::ranges::count(words, "--device_type=cuda") > 0;
    const bool xla = std::ranges::count(words, "--device_type=xla") > 0;
    EXPECT_EQ(result.status, cuda || (xla && !xla::plugin_of_tests()) ? 1 : 0) << result.err;
    if (cuda) expect_contains(result.message(), "CUDA: no driver");
  }
  EXPECT_EQ(commands, (std::set<std::string>{"plan", "train"}));
}

TEST_F(Debugging, OneRankOfTwoIsStartedByGdbserver) {
  // Stands in for the real one: says so, and runs the program.
  write("gdbserver", "#!/bin/sh\necho \"Listening on port ${1##*:}\" >&2\nshift\nexec \"$@\"\n");
  ASSERT_EQ(::chmod(path("gdbserver").c_str(), 0755), 0);
  Json tasks = read_json("tasks.json").at("tasks");
  const Json& task = tasks.back();
  EXPECT_EQ(task.at("command"), kProgram);
  std::string ready = task.at("problemMatcher").at("background").at("endsPattern");
  ProgramResult result = run_there(task.at("args").get<Words>() + short_run(), path("").string());
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, cat("[rank 0] ", ready));
  expect_lacks(result.err, cat("[rank 1] ", ready));
  const Json launch = read_json("launch.json");
  for (const Json& configuration : launch.at("configurations")) {
    if (configuration.value("preLaunchTask", "") != task.at("label").get<std::string>()) continue;
    std::string address = configuration.at("miDebuggerServerAddress");
    EXPECT_EQ(cat("Listening on port", address.substr(address.rfind(':') + 1)),
              cat("Listening on port", ready.substr(ready.rfind(' ') + 1)));
  }
}

TEST_F(Debugging, TheBuildIsAPreset) {
  const Json presets = Json::parse(read_file(kSource / "CMakePresets.json"));
  bool found = false;
  for (const Json& preset : presets.at("configurePresets")) {
    found |= preset.at("name") == "debug" && preset.at("binaryDir") == "${sourceDir}/build/debug";
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tessera
