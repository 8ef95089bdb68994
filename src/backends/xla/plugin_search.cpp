#include "backends/xla/plugin_search.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/own_program.h"
#include "base/text.h"

namespace tessera::xla {

namespace fs = std::filesystem;

namespace {

constexpr const char* kVariable = "TESSERA_XLA_PLUGIN";

// Where the packages of Python put it, below the directory that they were installed to.
std::vector<std::string> places_in_packages(PluginKind kind) {
  if (kind == PluginKind::kCpu) {
    return {"xla_cpu_pjrt.so", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"};
  }
  return {"xla_cuda_plugin.so", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"};
}

std::optional<fs::path> in_packages(const fs::path& directory, PluginKind kind) {
  for (const std::string& place : places_in_packages(kind)) {
    std::error_code error;
    if (fs::is_regular_file(directory / place, error)) return directory / place;
  }
  return std::nullopt;
}

// There, or where a virtual environment in that directory has its packages.
std::optional<fs::path> in_directory(const fs::path& directory, PluginKind kind) {
  if (auto found = in_packages(directory, kind)) return found;
  std::error_code error;
  std::vector<fs::path> versions;
  for (const auto& entry : fs::directory_iterator(directory / "lib", error)) {
    if (entry.path().filename().string().starts_with("python")) versions.push_back(entry.path());
  }
  std::sort(versions.rbegin(), versions.rend());
  for (const fs::path& version : versions) {
    if (auto found = in_packages(version / "site-packages", kind)) return found;
  }
  return std::nullopt;
}

// By its name; a library that is called otherwise may be of any kind.
bool is_of_other_kind(const fs::path& library, PluginKind kind) {
  const std::string file = library.filename().string();
  return file.find(kind == PluginKind::kCpu ? "cuda" : "cpu") != std::string::npos;
}

std::vector<fs::path> beside_the_program() {
  std::error_code error;
  const fs::path own = fs::canonical(program_file(), error).parent_path();
  return {own, own / "xla", own.parent_path() / "xla", own.parent_path() / "lib/tessera/xla"};
}

// What --xla_plugin or the variable says, `source`: a mistake there is not passed over. Nothing
// where it names a plug-in of the other kind.
std::optional<fs::path> given(const std::string& value, const std::string& source,
                              PluginKind kind) {
  std::error_code error;
  if (!fs::exists(value, error)) {
    throw UserError(cat(source, " '", value,
                        "': no such file or directory; it names a plug-in of "
                        "XLA, or the directory that one was installed to (docs/xla.md)"));
  }
  if (fs::is_directory(value, error)) return in_directory(value, kind);
  if (is_of_other_kind(value, kind)) return std::nullopt;
  return fs::path(value);
}

struct Search {
  std::optional<fs::path> found;
  std::vector<std::string> looked_at;
};

Search search(const std::string& option, PluginKind kind) {
  Search result;
  if (!option.empty()) {
    result.found = given(option, "--xla_plugin", kind);
    result.looked_at.push_back(cat("--xla_plugin '", option, "'"));
    return result;
  }
  if (const char* variable = std::getenv(kVariable); variable && *variable) {
    result.looked_at.push_back(cat(kVariable, " '", variable, "'"));
    result.found = given(variable, kVariable, kind);
    if (result.found) return result;
  }
  for (const fs::path& directory : beside_the_program()) {
    result.looked_at.push_back(cat("'", directory.string(), "'"));
    result.found = in_directory(directory, kind);
    if (result.found) return result;
  }
  return result;
}

}  // namespace

std::string name(PluginKind kind) { return kind == PluginKind::kCpu ? "cpu" : "cuda"; }

std::optional<fs::path> plugin_if_any(const std::string& option, PluginKind kind) {
  return search(option, kind).found;
}

fs::path find_plugin(const std::string& option, PluginKind kind) {
  const Search result = search(option, kind);
  if (result.found) return *result.found;
  throw UserError(cat("no plug-in of XLA for ", name(kind), ": looked for ",
                      places_in_packages(kind)[0], " in ", join(result.looked_at, ", "),
                      "; get it with `tools/packages install xla",
                      kind == PluginKind::kCuda ? "_cuda" : "",
                      "`, or name it with --xla_plugin or ", kVariable, " (docs/xla.md)"));
}

PluginKind kind_of_environment() {
  const char* value = std::getenv("PJRT_DEVICE");
  const std::string device = lower(value ? value : "");
  if (device.empty() || device == "cpu") return PluginKind::kCpu;
  if (device == "cuda" || device == "gpu") return PluginKind::kCuda;
  throw UserError(cat("PJRT_DEVICE=", value, ": XLA's plug-ins here are for CPU and CUDA"));
}

}  // namespace tessera::xla
