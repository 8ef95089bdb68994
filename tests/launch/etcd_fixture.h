#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launch/etcd_client.h"
#include "tests/base/scratch_directory.h"
#include "tests/comm/free_port.h"

namespace tessera {

// An etcd of one or more members on loopback, each a process that dies with this one.
class EtcdCluster {
 public:
  // The program, of TESSERA_TEST_ETCD or in PATH; "" where there is none.
  static std::string program() {
    if (const char* given = std::getenv("TESSERA_TEST_ETCD")) return given;
    const char* path = std::getenv("PATH");
    for (std::string_view folder : split(path ? path : "", ':')) {
      std::string candidate = cat(folder, "/etcd");
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return "";
  }

  // `more`: words for all of them.
  explicit EtcdCluster(size_t members, std::vector<std::string> more = {},
                       std::string scheme = "http")
      : more_(std::move(more)), scheme_(std::move(scheme)) {
    for (size_t i = 0; i < members; ++i) ports_.push_back({free_port(), free_port()});
    pids_.resize(members);
    for (size_t i = 0; i < members; ++i) start(i);
    if (more_.empty()) wait_until_it_answers();
  }
  ~EtcdCluster() {
    for (size_t i = 0; i < pids_.size(); ++i) kill(i);
  }

  void start(size_t member) {
    std::string name = cat("m", member), data = (directory_.path() / name).string();
    std::string cluster, log = cat(data, ".log");
    for (size_t i = 0; i < ports_.size(); ++i)
      cluster += cat(i ? "," : "", "m", i, "=http://127.0.0.1:", ports_[i].peer);
    std::string client = cat(scheme_, "://127.0.0.1:", ports_[member].client);
    std::string peer = cat("http://127.0.0.1:", ports_[member].peer);
    std::vector<std::string> words{program(),
                                   "--name",
                                   name,
                                   "--data-dir",
                                   data,
                                   "--listen-client-urls",
                                   client,
                                   "--advertise-client-urls",
                                   client,
                                   "--listen-peer-urls",
                                   peer,
                                   "--initial-advertise-peer-urls",
                                   peer,
                                   "--initial-cluster",
                                   cluster,
                                   "--heartbeat-interval=50",
                                   "--election-timeout=500"};
    words.insert(words.end(), more_.begin(), more_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t parent = ::getpid();
    pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    pids_[member] = child;
  }

  void kill(size_t member) {
    if (pids_[member] <= 0) return;
    ::kill(pids_[member], SIGKILL);
    ::waitpid(pids_[member], nullptr, 0);
    pids_[member] = 0;
  }

  void forget(size_t member) const {
    std::filesystem::remove_all(directory_.path() / cat("m", member));
  }

  std::vector<Endpoint> endpoints() const {
    std::vector<Endpoint> all;
    for (const Ports& ports : ports_) all.push_back({"127.0.0.1", ports.client});
    return all;
  }
  // As --rdzv_endpoint takes them.
  std::string endpoints_text() const {
    std::string text;
    for (const Endpoint& endpoint : endpoints())
      text += cat(text.empty() ? "" : ",", to_string(endpoint));
    return text;
  }

  void wait_until_it_answers() const {
    EtcdClient client(endpoints(), {});
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (true) {
      try {
        client.call("kv/range", R"({"key":"eA=="})");
        return;
      } catch (const Error&) {
        if (std::chrono::steady_clock::now() >= limit) throw;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
  }

 private:
  struct Ports {
    int client, peer;
  };

  ScratchDirectory directory_;
  std::vector<std::string> more_;
  std::string scheme_;
  std::vector<Ports> ports_;
  std::vector<pid_t> pids_;
};

}  // namespace tessera
