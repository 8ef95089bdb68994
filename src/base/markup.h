#pragma once
#include <string>
#include <string_view>

namespace tessera {

// Text as it stands between the tags of HTML and SVG.
inline std::string escape_markup(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

}  // namespace tessera
