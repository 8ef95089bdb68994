#include "tables/json_text.h"

#include <cmath>

#include "base/text.h"

namespace tessera {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void append_escape(char c, std::string& out) {
  out.push_back('\\');
  switch (c) {
    case '"':
    case '\\': out.push_back(c); return;
    case '\b': out.push_back('b'); return;
    case '\f': out.push_back('f'); return;
    case '\n': out.push_back('n'); return;
    case '\r': out.push_back('r'); return;
    case '\t': out.push_back('t'); return;
    default: break;
  }
  out.append("u00");
  out.push_back(kHexDigits[static_cast<unsigned char>(c) >> 4u]);
  out.push_back(kHexDigits[static_cast<unsigned char>(c) & 15u]);
}

template <class T>
void append_number(T value, std::string& out) {
  if (std::isfinite(value)) {
    detail::append(out, value);
  } else {
    out.append("null");
  }
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out.push_back('"');
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!needs_escape(text[i])) continue;
    out.append(text.substr(done, i - done));
    append_escape(text[i], out);
    done = i + 1;
  }
  out.append(text.substr(done));
  out.push_back('"');
}

void append_json_number(double value, std::string& out) { append_number(value, out); }
void append_json_number(float value, std::string& out) { append_number(value, out); }

}  // namespace tessera
