#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/child_process.h"
#include "tests/base/comes_true.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Starts agents (launch_program.cpp), several at once if need be, in a directory of the test's own.
// After each test no process that it started may be left.
class AgentTest : public testing::Test {
 protected:
  struct Result {
    int status = -1;  // 128 + n: killed by signal n
    std::string out, err;
  };

  ~AgentTest() override {
    for (const auto& [pid, tag] : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    expect_no_process_left();
  }

  std::filesystem::path path(const std::string& name) const { return directory_ / name; }

  pid_t start(const Words& words, const std::string& tag = "a", const Words& variables = {}) {
    Words all = Words{LAUNCH_PROGRAM, "run"} + words;
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string out = path(tag + ".out").string(), err = path(tag + ".err").string();
    std::filesystem::remove(out);  // of an earlier agent: wait_for() shall not find it
    std::filesystem::remove(err);
    pid_t child = ::fork();
    if (child != 0) {
      running_[child] = tag;
      return child;
    }
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open(out.c_str(), flags, 0666), 1);
    ::dup2(::open(err.c_str(), flags, 0666), 2);
    ::setenv("LAUNCH_TEST", directory_.path().c_str(), 1);
    for (const std::string& variable : variables) ::putenv(const_cast<char*>(variable.c_str()));
    if (::chdir(directory_.path().c_str()) != 0) ::_exit(126);
    // A shell leaves these ignored in what runs behind it.
    for (int signal : {SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  Result finish(pid_t pid) {
    std::string tag = running_.at(pid);
    int status = wait_for_end(pid, cat("the agent (", tag, ".err)"));
    running_.erase(pid);
    return {status, read_file(path(tag + ".out")), read_file(path(tag + ".err"))};
  }

  Result run(const Words& words) { return finish(start(words)); }

  bool has(const std::string& file, const std::string& text) const {
    return std::filesystem::exists(path(file)) &&
           read_file(path(file)).find(text) != std::string::npos;
  }
  // Waits until the file holds the text; the text of the file.
  std::string wait_for(const std::string& file, const std::string& text) const {
    if (comes_true([&] { return has(file, text); })) return read_file(path(file));
    ADD_FAILURE() << "no " << text << " in " << file;
    return "";
  }

  // The number behind `label` in a text.
  static pid_t number_behind(const std::string& text, const std::string& label) {
    size_t at = text.find(label);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + label.size()));
  }

  // Processes that inherited this test's mark.
  int processes_left() const {
    int count = 0;
    std::string mark = cat("LAUNCH_TEST=", directory_.path().string(), '\0');
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::string id = entry.path().filename();
      if (id.find_first_not_of("0123456789") != std::string::npos) continue;
      try {
        count += read_file(entry.path() / "environ").find(mark) != std::string::npos;
      } catch (const std::exception&) {
        // It has ended, or is another user's.
      }
    }
    return count;
  }

  void expect_no_process_left() const {
    EXPECT_TRUE(comes_true([&] { return processes_left() == 0; })) << processes_left();
  }

 private:
  ScratchDirectory directory_;
  std::map<pid_t, std::string> running_;
};

}  // namespace tessera
