#include "base/process_identity.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

uint64_t random_word() {
  uint64_t word = 0;
  if (::getentropy(&word, sizeof word) != 0) throw DeviceError("the system has no random numbers");
  return word;
}

struct ProcessState {
  bool ended = false;  // and only its number is left
  bool stopped = false;
  bool killed = false;  // a signal ends it
  std::string start;
};

// nullopt where the system does not tell.
std::optional<ProcessState> process_state(pid_t process) {
  try {
    std::string stat = read_file(cat("/proc/", process, "/stat"));
    size_t name_end = stat.rfind(')');  // the name before it may hold anything
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) return {};
    auto fields = split(std::string_view(stat).substr(name_end + 2), ' ');
    // flags, starttime and signal (those that wait) of proc(5), counted from the state.
    constexpr size_t kFlags = 6, kStart = 19, kSignal = 28;
    constexpr uint64_t kSignaled = 0x400, kKill = uint64_t{1} << (SIGKILL - 1);
    if (fields.size() <= kSignal) return {};
    auto has = [&](size_t field, uint64_t bit) {
      return (std::strtoull(std::string(fields[field]).c_str(), nullptr, 10) & bit) != 0;
    };
    return ProcessState{fields[0] == "Z" || fields[0] == "X", fields[0] == "T" || fields[0] == "t",
                        has(kFlags, kSignaled) || has(kSignal, kKill), std::string(fields[kStart])};
  } catch (const UserError&) {
    return {};  // hidden from this user, or gone just now
  }
}

// Names a boot and a process namespace; "0" where they are not known.
std::string place() {
  std::string boot = boot_id();
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0) return "0";
  return hex(hash_text(cat(boot, " ", space.st_dev, " ", space.st_ino)));
}

std::string own_start() {
  auto own = process_state(::getpid());
  return own ? own->start : "0";
}

bool all_of(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

std::optional<pid_t> parse_pid(std::string_view text) {
  const auto pid = parse_number<pid_t>(text);
  return pid > 0 ? pid : std::nullopt;
}

}  // namespace

std::string random_id() { return hex(random_word()) + hex(random_word()); }

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string boot_id() {
  try {
    return std::string(trim(read_file("/proc/sys/kernel/random/boot_id")));
  } catch (const UserError&) {
    return "";
  }
}

std::string unique_suffix() {
  return cat(::getpid(), ".", own_start(), ".", place(), ".", hex(random_word()));
}

bool is_unique_suffix(std::string_view text) {
  auto parts = split(text, '.');
  if (!parse_pid(parts[0])) return false;
  if (parts.size() == 1) return true;
  constexpr std::string_view kDigits = "0123456789", kHex = "0123456789abcdef";
  return parts.size() == 4 && all_of(parts[1], kDigits) && all_of(parts[2], kHex) &&
         all_of(parts[3], kHex);
}

bool maker_has_ended(std::string_view suffix) {
  auto parts = split(suffix, '.');
  pid_t pid = parse_pid(parts[0]).value_or(0);
  if (pid == 0) return false;
  bool bare = parts.size() == 1;
  if (!bare && (parts.size() != 4 || parts[2] == "0" || parts[2] != place())) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  auto state = process_state(pid);
  if (!state) return false;
  return state->ended || (!bare && parts[1] != "0" && parts[1] != state->start);
}

bool is_being_killed(pid_t process) {
  const auto state = process_state(process);
  return state && state->killed;
}

MakerState maker_state(std::string_view suffix) {
  if (maker_has_ended(suffix)) return MakerState::kEnded;
  auto parts = split(suffix, '.');
  if (parts.size() != 4 || parts[2] == "0" || parts[2] != place()) return MakerState::kUnknown;
  auto state = process_state(parse_pid(parts[0]).value_or(0));
  if (!state) return MakerState::kUnknown;
  return state->stopped ? MakerState::kStopped : MakerState::kRunning;
}

bool made_here(std::string_view suffix) {
  std::string own = cat(::getpid());
  return suffix == own || suffix.starts_with(cat(own, ".", own_start(), ".", place(), "."));
}

void remove_leftovers_of(const std::filesystem::path& path, std::string_view mark) {
  namespace fs = std::filesystem;
  const std::string prefix = cat(path.filename().string(), mark);
  std::error_code error, ignored;
  for (fs::directory_iterator it(path.has_parent_path() ? path.parent_path() : ".", error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && maker_has_ended(std::string_view(name).substr(prefix.size())))
      fs::remove_all(it->path(), ignored);
  }
}

}  // namespace tessera
