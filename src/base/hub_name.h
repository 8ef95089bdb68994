#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace tessera {

// Whether text is a name on Hugging Face's hub, "org/name". No file of that path is meant to exist.
inline bool is_hub_name(std::string_view text) {
  auto letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size()) return false;
  std::string_view organisation = text.substr(0, slash), name = text.substr(slash + 1);
  return organisation != "." && organisation != ".." && std::ranges::all_of(organisation, letter) &&
         std::ranges::all_of(name, letter);
}

}  // namespace tessera
