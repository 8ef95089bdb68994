#include "base/own_program.h"

#include <errno.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace tessera {

std::optional<std::string> start_script() {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || !self.filename().string().starts_with("ld-linux")) return std::nullopt;
  return program_invocation_name;  // which the script gives to the loader, absolute
}

std::string program_file() {
  if (!start_script()) return "/proc/self/exe";
  const auto here = reinterpret_cast<uintptr_t>(&program_file);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    const size_t path = line.find('/');
    if (begin <= here && here < end && path != std::string::npos) return line.substr(path);
  }
  return "/proc/self/exe";
}

uint64_t program_hash() {
  const ReadFile file(program_file());
  std::vector<std::byte> block(size_t{1} << 18);
  Hasher hasher;
  for (uint64_t at = 0; at < file.size(); at += block.size()) {
    const std::span part(block.data(), std::min<uint64_t>(block.size(), file.size() - at));
    file.read(at, part);
    hasher.add(part.data(), part.size());
  }
  return hasher.digest();
}

}  // namespace tessera
