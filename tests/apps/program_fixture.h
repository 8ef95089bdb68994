#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "tests/base/child_process.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {

struct ProgramResult {
  int status = -1;  // 128 + n: killed by signal n
  std::string out, err;
  double seconds = 0;
  // The last line of standard error: where the message of a failure stands.
  std::string message() const {
    std::string_view text = trim(err);
    return std::string(
        text.substr(text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1));
  }
};

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Starts the program in a directory of its own, also several times at once.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() { write("text.txt", made_up_text(800)); }
  ~ProgramTest() override {
    for (const auto& [pid, tag] : running_) {  // the test failed before it waited
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  static std::string made_up_text(int words) {
    const char* vocabulary[] = {"the", "quick", "brown", "fox",   "jumps", "over", "lazy",  "dogs",
                                "and", "cats",  "while", "birds", "sing",  "of",   "spring"};
    std::string text;
    for (int i = 0; i < words; ++i) {
      text += vocabulary[random_below(1, 0, static_cast<uint64_t>(i), 15)];
      text += i % 10 == 9 ? '\n' : ' ';
    }
    return text;
  }

  std::filesystem::path path(const std::string& name) const { return directory_ / name; }
  void write(const std::string& name, std::string_view content) const {
    directory_.write(name, content);
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }
  std::set<std::string> names(const std::string& folder) const {
    std::set<std::string> names;
    if (!exists(folder)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder))) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  // A job on text.txt with a tiny model.
  static Words tiny_shape() {
    return {"--model_type", "llama_v2", "--hidden_width",        "32", "--num_layers",        "2",
            "--num_heads",  "4",        "--num_key_value_heads", "2",  "--intermediate_size", "64",
            "--vocab_size", "257",      "--max_context_width",   "16", "--train_batch_size",  "4"};
  }
  static Words tiny_job() {
    return tiny_shape() + Words{"--dataset", "text.txt",         "--tokenizer", "byte",      "--lr",
                                "0.01",      "--lr_decay_iters", "20",          "--threads", "2"};
  }
  // Of an option given twice the last wins: a test changes what it wants to.
  static Words train(const Words& more) { return Words{"train"} + tiny_job() + more; }

  // Its output goes to the files {tag}.out and {tag}.err.
  pid_t start(
      const Words& words, const std::function<void()>& in_child = [] {},
      const std::string& tag = "") {
    std::vector<char*> argv;
    Words all = Words{TESSERA_PROGRAM} + words;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string out = path(tag + ".out").string(), err = path(tag + ".err").string();
    pid_t child = ::fork();
    if (child != 0) {
      running_[child] = tag;
      return child;
    }
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), flags, 0666), 1);
    ::dup2(::open(err.c_str(), flags, 0666), 2);
    if (::chdir(directory_.path().c_str()) != 0) ::_exit(126);
    // A shell leaves these ignored in what runs behind it.
    for (int signal : {SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
    in_child();
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  // Waits until the file holds the text, for as long as finish() waits at most.
  void wait_for(const std::string& name, const std::string& text) const {
    for (const double end = monotonic_seconds() + 100; monotonic_seconds() < end;) {
      if (exists(name) && read_file(path(name)).find(text) != std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no " << text << " in " << name;
  }

  ProgramResult finish(pid_t child) {
    std::string tag = running_.at(child);
    ProgramResult result;
    result.status = wait_for_end(child, cat("the program (", tag, ".err)"));
    running_.erase(child);
    result.out = read_file(path(tag + ".out"));
    result.err = read_file(path(tag + ".err"));
    return result;
  }

  ProgramResult run(
      const Words& words, const std::function<void()>& in_child = [] {}) {
    double begin = monotonic_seconds();
    ProgramResult result = finish(start(words, in_child));
    result.seconds = monotonic_seconds() - begin;
    return result;
  }

  // One that must succeed.
  ProgramResult ok(const Words& words) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }

  // Losses of a metrics file as written there.
  Words losses(const std::string& file) const {
    Words found;
    std::string text = read_file(path(file));
    for (std::string_view line : split(trim(text), '\n')) {
      auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) found.push_back(json["loss"].dump());
    }
    return found;
  }

 private:
  ScratchDirectory directory_;
  std::map<pid_t, std::string> running_;  // and the tag of each
};

}  // namespace tessera
