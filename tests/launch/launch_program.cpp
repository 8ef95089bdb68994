// `launch_program run ...` is `tessera run`; `launch_program train WORDS` is a worker that does
// what its words say, one after the other:
//   print TEXT, error TEXT   a line; "%RANK" and other variables of the environment are replaced
//   sleep MS, exit CODE, raise SIGNAL, hang
//   await FILE               until there is one
//   on_term CODE             SIGTERM prints "saved" and exits so;   ignore_term
//   on_save                  is asked to save: cannot the first time, then can
//   lose_request             waits for the first request to save, of which nothing is heard again
//   child                    starts a process that ignores SIGTERM and never ends
//   rank R, attempt A        the words up to its `end` are for that rank or attempt only
// Options (--threads N) are printed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/agent.h"

// In place of the system's: with LAUNCH_REACHES=",PORT,PORT," nothing else answers, as behind a
// firewall, which refuses with LAUNCH_REFUSES, and with LAUNCH_CUT=ADDRESS all but that address.
extern "C" int connect(int socket, const sockaddr* address, socklen_t size) {
  const char* reached = std::getenv("LAUNCH_REACHES");
  int type = 0;
  socklen_t type_size = sizeof type;
  ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size);
  const char* cut = std::getenv("LAUNCH_CUT");
  if ((reached || cut) && type == SOCK_STREAM && address->sa_family == AF_INET) {
    sockaddr_in place{};
    std::memcpy(&place, address, sizeof place);
    const bool is_cut = cut && place.sin_addr.s_addr == ::inet_addr(cut);
    const std::string port = "," + std::to_string(ntohs(place.sin_port)) + ",";
    if (is_cut || (reached && !std::strstr(reached, port.c_str()))) {
      errno = std::getenv("LAUNCH_REFUSES") ? ECONNREFUSED : EHOSTUNREACH;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_connect, socket, address, size));
}

// In place of the system's: with LAUNCH_SENDS=N the process is killed ahead of the one behind the
// first N.
extern "C" ssize_t send(int socket, const void* bytes, size_t size, int flags) {
  static std::atomic<int> done{0};
  const char* sends = std::getenv("LAUNCH_SENDS");
  if (sends && done++ >= std::atoi(sends)) std::raise(SIGKILL);
  return ::sendto(socket, bytes, size, flags, nullptr, 0);
}

namespace {

volatile std::sig_atomic_t exit_code = 0;

void on_term(int) {
  const char text[] = "saved\n";
  (void)!::write(1, text, sizeof text - 1);
  ::_exit(exit_code);
}

void on_user(int) {
  const char text[] = "got usr1\n";
  (void)!::write(1, text, sizeof text - 1);
}

void on_save(int) {
  static volatile std::sig_atomic_t asked = 0;
  const char bad[] = "Not saved as asked\n", good[] = "Saved as asked\n";
  (void)!(asked ? ::write(2, good, sizeof good - 1) : ::write(2, bad, sizeof bad - 1));
  asked = 1;
}

std::string expand(std::string text) {
  for (size_t at = 0; (at = text.find('%')) != std::string::npos;) {
    size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at + 1);
    std::string name = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    const char* value = name == "PID" ? nullptr : std::getenv(name.c_str());
    text.replace(at, name.size() + 1,
                 name == "PID" ? std::to_string(::getpid())
                 : value       ? value
                               : "(unset)");
  }
  return text;
}

int work(const std::vector<std::string>& words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::signal(SIGUSR1, on_user);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto skip_unless = [&](const char* variable) {
      if (words[++i] == std::getenv(variable)) return;
      for (int depth = 1; depth > 0;) {
        const std::string& next = words[++i];
        if (next == "rank" || next == "attempt") ++depth, ++i;
        if (next == "end") --depth;
      }
    };
    if (word == "print") {
      std::printf("%s\n", expand(words[++i]).c_str());
    } else if (word == "error") {
      std::fprintf(stderr, "%s\n", expand(words[++i]).c_str());
    } else if (word == "sleep") {
      ::usleep(static_cast<useconds_t>(std::stoi(words[++i]) * 1000));
    } else if (word == "await") {
      for (++i; ::access(words[i].c_str(), F_OK) != 0;) ::usleep(5000);
    } else if (word == "exit") {
      return std::stoi(words[++i]);
    } else if (word == "raise") {
      std::raise(std::stoi(words[++i]));
    } else if (word == "hang") {
      while (true) ::pause();
    } else if (word == "on_term") {
      exit_code = std::stoi(words[++i]);
      std::signal(SIGTERM, on_term);
    } else if (word == "on_save") {
      std::signal(SIGUSR2, on_save);
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR2);
      ::sigprocmask(SIG_UNBLOCK, &set, nullptr);  // as a rank that takes its signals
    } else if (word == "lose_request") {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR2);  // blocked in ranks that have just started
      int taken = 0;
      ::sigwait(&set, &taken);
    } else if (word == "ignore_term") {
      std::signal(SIGTERM, SIG_IGN);
    } else if (word == "child") {
      if (::fork() == 0) {
        std::signal(SIGTERM, SIG_IGN);
        while (true) ::pause();
      }
    } else if (word == "rank") {
      skip_unless("RANK");
    } else if (word == "attempt") {
      skip_unless("TESSERA_ATTEMPT");
    } else if (word.starts_with("--")) {
      std::printf("option %s %s\n", word.c_str(), words[i + 1].c_str());
      ++i;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return 2;
  std::string command = words[0];
  words.erase(words.begin());
  if (command == "train") return work(words);
  try {
    auto environment = [](const char* name) { return static_cast<const char*>(std::getenv(name)); };
    std::vector<std::string> own{"train"};
    return tessera::run_agent(tessera::parse_run_options(words, environment), own);
  } catch (const tessera::UsageError& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 1;
  }
}
