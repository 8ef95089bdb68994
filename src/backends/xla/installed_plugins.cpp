#include "backends/xla/installed_plugins.h"

#include <algorithm>

#include "backends/xla/child_process.h"
#include "backends/xla/plugin.h"
#include "base/text.h"

namespace tessera::xla {

std::vector<InstalledPlugin> installed_plugins(std::chrono::seconds timeout) {
  std::vector<InstalledPlugin> all;
  for (PluginKind kind : {PluginKind::kCpu, PluginKind::kCuda}) {
    InstalledPlugin plugin{.kind = kind};
    try {
      const auto found = plugin_if_any("", kind);
      if (!found) continue;
      plugin.path = *found;
    } catch (const UserError& error) {
      plugin.error = error.what();
    }
    // A name that says nothing of the kind, or a variable that names nothing, comes once.
    const bool again = std::ranges::any_of(
        all, [&](const InstalledPlugin& other) { return other.path == plugin.path; });
    if (again) continue;
    if (plugin.error.empty()) {
      try {
        plugin.interface = in_child_process("loading it", timeout,
                                            [&] { return Plugin(plugin.path.string()).version(); });
      } catch (const Error& error) {
        plugin.error = error.what();
      }
    }
    all.push_back(std::move(plugin));
  }
  return all;
}

std::string to_string(const InstalledPlugin& plugin) {
  if (plugin.path.empty()) return plugin.error;
  const std::string file = cat("'", plugin.path.string(), "'");
  if (!plugin.error.empty()) return cat(file, " does not load: ", plugin.error);
  return cat(name(plugin.kind), ", interface ", plugin.interface, ", ", file);
}

}  // namespace tessera::xla
