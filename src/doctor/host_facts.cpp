#include "doctor/host_facts.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// "" where there is no such file, or it is not to be read.
std::string content_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  try {
    return std::string(trim(read_file(path)));
  } catch (const UserError&) {
    return "";
  }
}

// The whole number that a text begins with; null where there is none.
Json number_in(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? Json(value) : Json();
}

// Of a line "MemTotal:  123 kB".
Json kilobytes(const std::string& lines, std::string_view name) {
  size_t at = lines.find(cat(name, ":"));
  if (at == std::string::npos) return {};
  Json value = number_in(trim(std::string_view(lines).substr(at + name.size() + 1)));
  return value.is_null() ? value : Json(value.get<int64_t>() * 1024);
}

Json limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return {};
  return limit.rlim_cur == RLIM_INFINITY ? Json() : Json(static_cast<uint64_t>(limit.rlim_cur));
}

// The least limit of the process's cgroup and those around it. Where there is none, version 1 names
// nearly the largest number.
Json cgroup_memory_limit() {
  std::vector<fs::path> files{"/sys/fs/cgroup/memory.max",
                              "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  const std::string groups = content_of("/proc/self/cgroup");
  for (std::string_view line : split(groups, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view kinds = line.substr(first + 1, second - first - 1);
    const bool is_second = kinds.empty();
    if (!is_second && kinds.find("memory") == std::string_view::npos) continue;
    fs::path below = fs::path(line.substr(second + 1)).relative_path();
    for (; !below.empty(); below = below.parent_path()) {
      files.push_back(is_second ? "/sys/fs/cgroup" / below / "memory.max"
                                : "/sys/fs/cgroup/memory" / below / "memory.limit_in_bytes");
    }
  }
  Json least;
  for (const fs::path& file : files) {
    Json limit = number_in(content_of(file));
    if (limit.is_null() || limit.get<int64_t>() >= int64_t{1} << 60) continue;
    if (least.is_null() || limit < least) least = limit;
  }
  return least;
}

Json shared_memory() {
  struct statvfs system {};
  if (::statvfs("/dev/shm", &system) != 0) return {};
  return {{"bytes", system.f_blocks * system.f_frsize},
          {"free", system.f_bavail * system.f_frsize}};
}

Json interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return Json::array();
  std::map<std::string, Json> by_name;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    Json& item = by_name[i->ifa_name];
    item["name"] = i->ifa_name;
    item["up"] = (i->ifa_flags & IFF_RUNNING) != 0;
    if (!item.contains("address")) item["address"] = "";
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    item["address"] = text;
  }
  ::freeifaddrs(first);
  Json all = Json::array();
  for (auto& [name, item] : by_name) {
    // Of those that are virtual or down: -1, or an error.
    Json megabits = number_in(content_of(fs::path("/sys/class/net") / name / "speed"));
    item["gbit"] = megabits.is_null() || megabits.get<int64_t>() <= 0
                       ? Json()
                       : Json(static_cast<double>(megabits.get<int64_t>()) / 1000);
    all.push_back(item);
  }
  return all;
}

int64_t entries_of(const fs::path& directory, std::string_view begin) {
  std::error_code error;
  int64_t count = 0;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    count += it->path().filename().string().starts_with(begin);
  return count;
}

// A library that programs load when they run, and where it was found; null where it is not.
class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }
  void* symbol(const char* name) const { return handle_ ? ::dlsym(handle_, name) : nullptr; }

 private:
  void* handle_;
};

std::string nccl_version() {
  Library nccl("libnccl.so.2");
  auto* version = reinterpret_cast<int (*)(int*)>(nccl.symbol("ncclGetVersion"));
  int number = 0;
  if (!version || version(&number) != 0) return "";
  // 21805 is 2.18.5, 2708 is 2.7.8.
  const int major = number < 10'000 ? number / 1'000 : number / 10'000;
  const int rest = number < 10'000 ? number % 1'000 : number % 10'000;
  return cat(major, ".", rest / 100, ".", rest % 100);
}

// By which NCCL speaks to EFA instead of sockets.
std::string nccl_plugin() {
  const char* wanted = ::getenv("NCCL_NET_PLUGIN");
  std::vector<std::string> names{"libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so"};
  if (wanted && *wanted)
    names.insert(names.begin(), std::string_view(wanted).find(".so") == std::string_view::npos
                                    ? cat("libnccl-net-", wanted, ".so")
                                    : wanted);
  for (const std::string& name : names)
    if (Library(name.c_str())) return name;
  return "";
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug ..."
std::string gpu_driver() {
  const std::string version = content_of("/proc/driver/nvidia/version");
  for (std::string_view word : split(version, ' ')) {
    if (word.find('.') != std::string_view::npos &&
        word.find_first_not_of("0123456789.") == std::string_view::npos)
      return std::string(word);
  }
  return "";
}

}  // namespace

Json host_facts() {
  const std::string memory = content_of("/proc/meminfo");
  std::string pages = content_of("/sys/kernel/mm/transparent_hugepage/enabled");
  if (size_t open = pages.find('['), close = pages.find(']'); close != std::string::npos)
    pages = pages.substr(open + 1, close - open - 1);
  return {{"host", host_name()},
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"usable_cores", available_cores()},
          {"memory", kilobytes(memory, "MemTotal")},
          {"available_memory", kilobytes(memory, "MemAvailable")},
          {"memory_limit", cgroup_memory_limit()},
          {"locked_memory_limit", limit_of(RLIMIT_MEMLOCK)},
          {"open_files_limit", limit_of(RLIMIT_NOFILE)},
          {"huge_pages", pages},
          {"shared_memory", shared_memory()},
          {"interfaces", interfaces()},
          {"gpus", entries_of("/proc/driver/nvidia/gpus", "")},
          {"gpu_driver", gpu_driver()},
          {"nccl", nccl_version()},
          {"nccl_plugin", nccl_plugin()},
          {"efa_devices", entries_of("/sys/class/infiniband", "")}};
}

}  // namespace tessera
