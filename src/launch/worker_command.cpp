#include "launch/worker_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "base/own_program.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What is behind a folder that may not be entered is none, as for a shell.
bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional(name) : std::nullopt;
  }
  const char* path = std::getenv("PATH");
  for (std::string_view folder : split(path ? path : "", ':')) {
    fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return candidate.string();
  }
  return std::nullopt;
}

// Shows up in lists of processes under its name, unlike /proc/self/exe, which in turn is right when
// the file has been replaced since this process started.
std::string own_program() {
  if (auto script = start_script()) return *script;
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  bool unchanged = !error && fs::equivalent(self, "/proc/self/exe", error) && !error;
  return unchanged ? self.string() : "/proc/self/exe";
}

// The value of the last of these options in the worker's words; "" where one has no value.
std::optional<std::string> value_of(const std::vector<std::string>& words,
                                    std::initializer_list<std::string_view> names) {
  std::optional<std::string> value;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) continue;
    size_t equals = words[i].find('=');
    std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    bool next = i + 1 < words.size() && !words[i + 1].starts_with("--");
    value = equals != std::string::npos ? words[i].substr(equals + 1) : next ? words[i + 1] : "";
  }
  return value;
}

void complete_train(WorkerCommand& command, const RunOptions& options, int attempt,
                    std::vector<std::string>& notes) {
  std::vector<std::string>& words = command.words;
  if (!value_of(words, {"threads"})) {
    int threads = std::max(1, available_cores() / options.nproc_per_node);
    words.insert(words.end(), {"--threads", cat(threads)});
    notes.push_back(cat("--threads ", threads, ": ", available_cores(), " cores for ",
                        options.nproc_per_node, options.nproc_per_node == 1 ? " rank" : " ranks"));
  }
  command.records = value_of(words, {"flight_recorder_size", "trace_buffer_size"}) != "0";
  command.flight_recorder_dir = value_of(words, {"flight_recorder_dir"}).value_or("");
  auto saved = value_of(words, {"checkpoint_dir", "ckpt_save_path", "save_ckpt_path"});
  // It may stand in a file of options as well.
  command.saves_nothing = (!saved || saved->empty()) && !value_of(words, {"config"});
  if (attempt == 0) return;
  // The ranks themselves find it: by the identity of the job, wherever the option stands.
  if (saved && !saved->empty()) {
    notes.push_back(cat("this attempt goes on from the newest checkpoint of this job in ", *saved,
                        ", if there is one"));
  } else if (command.saves_nothing) {
    notes.push_back("no --checkpoint_dir: this attempt does not continue the last one");
  }
}

bool is_own(const std::string& name, std::span<const std::string> own_commands) {
  return std::find(own_commands.begin(), own_commands.end(), name) != own_commands.end();
}

}  // namespace

void check_worker_program(const std::string& name, std::span<const std::string> own_commands,
                          bool here) {
  if (is_own(name, own_commands)) return;
  if (name.ends_with(".py")) {
    throw UsageError(cat("'", name,
                         "' is a Python script, and tessera has no Python: write "
                         "`tessera run ... train --model_type ...` with the options of "
                         "the script, or `tessera run ... -- python3 ",
                         name, "`"));
  }
  if (find_program(name)) return;
  std::vector<std::string> names(own_commands.begin(), own_commands.end());
  std::string close = nearest(name, names);
  if (!here && close.empty()) return;
  throw UsageError(cat("'", name, "' is neither a command of tessera nor a program",
                       close.empty() ? "" : cat("; did you mean '", close, "'?")));
}

WorkerCommand worker_command(const RunOptions& options, std::span<const std::string> own_commands,
                             int attempt, std::vector<std::string>& notes) {
  const std::string& name = options.command[0];
  WorkerCommand command;
  command.words = options.command;
  check_worker_program(name, own_commands, true);
  if (is_own(name, own_commands)) {
    command.program = own_program();
    command.is_own = true;
    command.words.insert(command.words.begin(), "tessera");
    if (name == "train") complete_train(command, options, attempt, notes);
    return command;
  }
  command.program = find_program(name).value_or(name);
  return command;
}

}  // namespace tessera
