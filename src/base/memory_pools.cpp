#include "base/memory_pools.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Of files that the kernel writes as they are read: their size is not known beforehand.
std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<int64_t> to_number(std::string_view text) {
  text = trim(text);
  // What does not fit is larger than any machine, as "max" and "unlimited" are.
  return parse_number<int64_t>(text.substr(0, text.find(' ')));
}

std::optional<int64_t> number_in(const fs::path& path) { return to_number(content(path)); }

// The number behind a key at the begin of a line; `text` has one a line.
std::optional<int64_t> number_behind(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (line.starts_with(key)) return to_number(line.substr(key.size()));
  }
  return {};
}

// "\040" and the like stand for blanks in the paths of mountinfo.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size();
    const auto code = escape ? parse_number<int>(text.substr(i + 1, 3), 8) : std::nullopt;
    plain += code ? static_cast<char>(*code) : text[i];
    i += code ? 3 : 0;
  }
  return plain;
}

// The names of what a version of cgroups says of memory.
struct CgroupFiles {
  std::vector<const char*> limits;
  const char *usage, *active, *inactive, *slab;
};
const CgroupFiles kVersion1{{"memory.limit_in_bytes"},
                            "memory.usage_in_bytes",
                            "total_active_file ",
                            "total_inactive_file ",
                            nullptr};
const CgroupFiles kVersion2{{"memory.max", "memory.high"},
                            "memory.current",
                            "active_file ",
                            "inactive_file ",
                            "slab_reclaimable "};

bool holds(std::string_view list, std::string_view word) {
  auto words = split(list, ',');
  return std::ranges::find(words, word) != words.end();
}

// Path of the process in a hierarchy, from lines "number:controllers:path".
std::optional<std::string> cgroup_path(std::string_view text, bool version2) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() && line.starts_with("0:") : holds(controllers, "memory"))
      return std::string(line.substr(second + 1));
  }
  return {};
}

struct Mount {
  std::string root, point;
};

// Where a hierarchy is mounted, from lines "1 2 3:4 ROOT POINT options [fields] - type source
// options".
std::optional<Mount> cgroup_mount(std::string_view text, bool version2) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    auto place = split(line.substr(0, dash), ' '), kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3) continue;
    if (version2 ? kind[0] == "cgroup2" : kind[0] == "cgroup" && holds(kind[2], "memory"))
      return Mount{unescaped(place[3]), unescaped(place[4])};
  }
  return {};
}

// The limits of one cgroup; those of unlimited ones are larger than any machine.
void add_limits(const fs::path& directory, const std::string& name, const CgroupFiles& files,
                std::vector<MemoryPool>& pools) {
  auto usage = number_in(directory / files.usage);
  struct stat status {};
  if (!usage || ::stat(directory.c_str(), &status) != 0) return;
  std::string stat = content(directory / "memory.stat");
  int64_t cache = number_behind(stat, files.active).value_or(0) +
                  number_behind(stat, files.inactive).value_or(0);
  if (files.slab) cache += number_behind(stat, files.slab).value_or(0);
  for (const char* file : files.limits) {
    auto limit = number_in(directory / file);
    if (!limit || *limit >= int64_t{1} << 60) continue;
    int64_t used = std::max<int64_t>(0, *usage - cache);
    pools.push_back({cat("cgroup ", status.st_dev, ":", status.st_ino, " ", file),
                     cat("cgroup ", name, " (", file, ")"), std::max<int64_t>(0, *limit - used)});
  }
}

void add_cgroups(const fs::path& root, bool version2, std::vector<MemoryPool>& pools) {
  auto path = cgroup_path(content(root / "proc/self/cgroup"), version2);
  auto mount = cgroup_mount(content(root / "proc/self/mountinfo"), version2);
  if (!path || !mount) return;
  fs::path top = root / fs::path(mount->point).relative_path();
  // Of a container the mount may begin at its own group, or the path lead out of what it sees.
  fs::path below = fs::path(*path).lexically_relative(mount->root);
  if (below.empty() || *below.begin() == "..") below = ".";
  fs::path group = (below == "." ? top : top / below).lexically_normal();
  std::error_code ignored;
  if (!fs::is_directory(group, ignored)) group = top.lexically_normal();
  const CgroupFiles& files = version2 ? kVersion2 : kVersion1;
  for (fs::path at = group;; at = at.parent_path()) {
    fs::path name = at.lexically_relative(top.lexically_normal());
    add_limits(at, name == "." ? "/" : cat("/", name.string()), files, pools);
    if (name == "." || !at.has_relative_path()) return;
  }
}

// "Max address space   LIMIT   LIMIT   bytes" of limits, less "VmSize:   N kB" of status.
void add_process_limits(const fs::path& root, std::vector<MemoryPool>& pools) {
  std::string limits = content(root / "proc/self/limits"),
              status = content(root / "proc/self/status");
  auto add = [&](const char* limit, const char* used, const char* name) {
    auto bytes = number_behind(limits, limit), kib = number_behind(status, used);
    if (bytes && kib) pools.push_back({"", name, std::max<int64_t>(0, *bytes - *kib * 1024)});
  };
  add("Max address space", "VmSize:", "the limit of a process's address space (ulimit -v)");
  add("Max data size", "VmData:", "the limit of a process's data (ulimit -d)");
}

}  // namespace

std::vector<MemoryPool> memory_pools(const fs::path& root) {
  std::vector<MemoryPool> pools;
  if (auto kib = number_behind(content(root / "proc/meminfo"), "MemAvailable:")) {
    std::string boot = content(root / "proc/sys/kernel/random/boot_id");
    pools.push_back({cat("machine ", trim(boot)), "this machine (MemAvailable)", *kib * 1024});
  }
  add_cgroups(root, true, pools);
  add_cgroups(root, false, pools);
  add_process_limits(root, pools);
  return pools;
}

}  // namespace tessera
