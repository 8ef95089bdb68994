#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace tessera::xla {

// Which devices a plug-in runs on.
enum class PluginKind { kCpu, kCuda };
std::string name(PluginKind kind);  // "cpu", "cuda"

// Where the plug-in for such devices is: `option` (--xla_plugin), else $TESSERA_XLA_PLUGIN, else
// beside the program (its own directory; xla/, ../xla/ and ../lib/tessera/xla/ from there). Each is
// the library itself or a directory that it was installed to, also a virtual environment of
// Python's. Nothing is loaded. UserError that lists where it was looked for, and says how to get
// one.
std::filesystem::path find_plugin(const std::string& option, PluginKind kind);

// The same; nothing where there is none.
std::optional<std::filesystem::path> plugin_if_any(const std::string& option, PluginKind kind);

// What PJRT_DEVICE asks for, by which PyTorch/XLA chooses a device: CPU, CUDA or GPU. kCpu where it
// is unset; UserError for another.
PluginKind kind_of_environment();

}  // namespace tessera::xla
