#include "apps/own_options.h"

#include <charconv>

namespace tessera {

int64_t byte_count(const std::string& value, int64_t lowest, const std::string& spelling) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  std::string unit = lower(std::string(end, value.data() + value.size()));
  if (unit.ends_with("ib") || unit.ends_with("b")) unit.resize(unit.find_first_of("ib"));
  const int shift = unit.empty() ? 0 : unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : -1;
  if (error != std::errc() || shift < 0 || number > (int64_t{1} << 40) >> shift ||
      number << shift < lowest) {
    throw UsageError(cat(spelling, " must be bytes from ", lowest,
                         " to 1 TiB, such as 64M: it is '", value, "'"));
  }
  return number << shift;
}

}  // namespace tessera
