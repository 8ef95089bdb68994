#include "observe/nccl_test_log.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

std::vector<double> average_bus_bandwidths(std::string_view log, std::string_view name) {
  constexpr std::string_view kTitle = "Avg bus bandwidth";
  std::vector<double> found;
  for (std::string_view line : split(log, '\n')) {
    const size_t title = line.find(kTitle), colon = line.find(':', title);
    if (title == std::string_view::npos || colon == std::string_view::npos) continue;
    const std::string_view text = trim(line.substr(colon + 1));
    double value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && std::isfinite(value)) found.push_back(value);
  }
  if (found.empty()) {
    throw UserError(cat("'", name, "' has no line '# ", kTitle,
                        "    : ...': is it the output of nccl-tests or of tessera comm-test?"));
  }
  return found;
}

}  // namespace tessera
