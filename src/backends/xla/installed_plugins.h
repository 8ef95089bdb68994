#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/xla/plugin_search.h"

namespace tessera::xla {

// A plug-in that is found without an option, loaded in a child process: one that is broken ends
// nobody else. No client is made of it, so no device is touched.
struct InstalledPlugin {
  PluginKind kind = PluginKind::kCpu;
  std::filesystem::path path;  // empty: what the variable names is not there
  std::string interface;       // "0.81"
  std::string error;           // why it does not load; empty: it does
};
std::vector<InstalledPlugin> installed_plugins(
    std::chrono::seconds timeout = std::chrono::seconds(30));

// "cpu, interface 0.81, 'PATH'", or why it does not load.
std::string to_string(const InstalledPlugin& plugin);

}  // namespace tessera::xla
