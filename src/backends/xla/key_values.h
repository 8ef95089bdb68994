#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "backends/xla/pjrt_api.h"

namespace tessera::xla {

// What the processes of a job share by name. A plug-in whose devices belong to several processes
// meets there, from threads of its own. Functions may throw; XLA is told the text.
struct KeyValues {
  // Waits until the key is there.
  std::function<std::string(const std::string& key, std::chrono::milliseconds timeout)> get;
  std::function<std::optional<std::string>(const std::string& key)> find;
  std::function<void(const std::string& key, const std::string& value)> put;
};

// Gives them to a plug-in as its callbacks; they must outlive the client.
void give(const KeyValues& values, pjrt::ClientCreate& create);

}  // namespace tessera::xla
