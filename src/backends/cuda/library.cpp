#include "backends/cuda/library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

std::string path_of(void* handle, const char* name) {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : name;
}

}  // namespace

Library::Library(std::string what, std::span<const char* const> names) : what_(std::move(what)) {
  const char* without = std::getenv(kWithoutVariable);
  for (std::string_view one : split(without ? without : "", ','))
    if (one == what_)
      throw DeviceError(cat("CUDA: no ", what_, ": ", kWithoutVariable, " leaves it out"));
  const char* folder = std::getenv(kLibrariesVariable);
  std::string reasons;
  auto open = [&](const std::string& path) {
    if (handle_) return;
    handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) reasons += cat(reasons.empty() ? "" : "; ", ::dlerror());
  };
  if (folder && *folder) {
    for (const char* name : names) {
      const std::filesystem::path path = std::filesystem::path(folder) / name;
      std::error_code error;
      if (std::filesystem::exists(path, error)) open(path.string());
    }
  }
  for (const char* name : names) open(name);
  if (!handle_) throw DeviceError(cat("CUDA: no ", what_, ": ", reasons));
  path_ = path_of(handle_, names.front());
}

void* Library::find(const char* name) const { return ::dlsym(handle_, name); }

void* Library::require(const char* name) const {
  void* function = find(name);
  if (!function)
    throw DeviceError(cat("CUDA: the ", what_, " is too old: '", path_, "' has no ", name));
  return function;
}

}  // namespace tessera::cuda
