#pragma once
#include <string>
#include <string_view>

#include "base/text.h"

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

// The beginning of a page of one file, within its <head>: it can load nothing from anywhere, and so
// tell nothing to anybody. `more` it is allowed: "connect-src 'self'" (Content-Security-Policy).
inline std::string page_head(std::string_view title, std::string_view more = "") {
  return cat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; ",
      more, "\">\n<title>", escape_markup(title), "</title>\n");
}

}  // namespace tessera
