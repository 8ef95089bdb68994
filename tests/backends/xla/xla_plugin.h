#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "backends/xla/plugin_search.h"

namespace tessera::xla {

// XLA is not compiled for them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Nothing under sanitizers, else where users would have it, or where tools/packages installs it.
inline std::optional<std::filesystem::path> plugin_of_tests(PluginKind kind = PluginKind::kCpu) {
  if (kSanitized) return std::nullopt;
  const std::string installed = TESSERA_SOURCE_DIR "/build/xla";
  if (auto found = plugin_if_any("", kind)) return found;
  return std::filesystem::exists(installed) ? plugin_if_any(installed, kind) : std::nullopt;
}

// Tests that need it, and say so where it is not there.
class XlaTest : public testing::Test {
 protected:
  void SetUp() override {
    auto plugin = plugin_of_tests();
    if (!plugin) GTEST_SKIP() << "no plug-in of XLA's CPU: tools/packages install xla";
    plugin_ = *plugin;
  }
  std::filesystem::path plugin_;
};

}  // namespace tessera::xla
