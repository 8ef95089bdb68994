#include "launch/job_end.h"

#include <algorithm>

#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {

std::string JobEnd::to_text() const {
  return cat(static_cast<int>(kind), " ", status, " ", may_retry ? 1 : 0, " ", lost_node, "\n",
             text);
}

std::optional<JobEnd> JobEnd::from_text(std::string_view text) {
  size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  auto words = split(text.substr(0, end), ' ');
  if (words.size() != 4) return std::nullopt;
  int numbers[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    const auto number = parse_number<int>(words[i]);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  if (numbers[0] < 0 || numbers[0] > static_cast<int>(Kind::kRegroup)) return std::nullopt;
  return JobEnd{static_cast<Kind>(numbers[0]), numbers[1] & 255, numbers[2] != 0,
                std::string(text.substr(end + 1)), std::max(numbers[3], -1)};
}

}  // namespace tessera
