#pragma once
#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace tessera {

// The number that the whole text is, or nothing: where it is empty, where anything stands before or
// behind the number, blanks too, where it begins with '+', or with '-' and T has no sign, and where
// it does not fit into T. `base` is for integers, whose digits have no prefix: "ff" of base 16. Of
// floating-point numbers "1e-3", "inf" and "nan" are some.
template <class T>
std::optional<T> parse_number(std::string_view text, std::same_as<int> auto... base) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace tessera
