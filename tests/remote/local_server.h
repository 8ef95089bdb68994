#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "remote/options.h"
#include "tests/base/scratch_directory.h"

namespace tessera {

// tests/remote/server.py over a directory, until this object ends.
class LocalServer {
 public:
  LocalServer() {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
    int input[2], output[2];
    if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0)
      throw UserError("no pipe");
    std::string script = TESSERA_SOURCE_DIR "/tests/remote/server.py", root = root_.path().string();
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(input[0], 0);
      ::dup2(output[1], 1);
      ::execlp("python3", "python3", "-B", script.c_str(), root.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    std::string line;
    for (char c = 0; ::read(output[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
    ::close(output[0]);
    if (line.empty()) throw UserError("python3 does not start tests/remote/server.py");
    port_ = line;
  }
  ~LocalServer() {
    ::close(input_);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  // The same server under two names: another host for whoever keeps secrets.
  std::string url(std::string_view path) const { return cat("http://127.0.0.1:", port_, path); }
  std::string other_url(std::string_view path) const {
    return cat("http://localhost:", port_, path);
  }

  std::filesystem::path write(const std::filesystem::path& name, std::string_view content) const {
    make_directories((root_ / name).parent_path());
    return root_.write(name, content);
  }

  // The lines of its log that hold `part`, METHOD TARGET host=H auth=A range=R status=S.
  std::vector<std::string> requests(std::string_view part = "") const {
    std::vector<std::string> found;
    std::filesystem::path log = root_ / "requests.log";
    if (!std::filesystem::exists(log)) return found;
    std::string text = read_file(log);
    for (std::string_view line : split(text, '\n')) {
      if (!line.empty() && line.find(part) != std::string_view::npos) found.emplace_back(line);
    }
    return found;
  }

  // Settings that give up soon, and a cache of their own.
  RemoteOptions options() const {
    RemoteOptions options;
    options.http.first_wait = 0.01;
    options.http.longest_wait = 0.05;
    options.http.attempts = 4;
    options.http.deadline = 100;
    options.hub.endpoint = url("");
    options.hub.home = cache_ / "huggingface";
    options.s3.endpoint = url("/s3");
    options.cache_directory = cache_ / "cache";
    options.block_bytes = 1000;
    return options;
  }

 private:
  ScratchDirectory root_, cache_;
  pid_t process_ = 0;
  int input_ = -1;
  std::string port_;
};

// Bytes that are different everywhere.
inline std::string test_content(size_t size, std::string_view seed = "content") {
  std::string content;
  for (int i = 0; content.size() < size; ++i) content += sha256(cat(seed, i));
  content.resize(size);
  return content;
}

inline std::string read_all(const ByteSource& source) {
  std::string text(source.size(), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace tessera
