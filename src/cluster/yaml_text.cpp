#include "cluster/yaml_text.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tessera {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Words that stand for something else than themselves in some version.
bool is_reserved(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords{"true", "false", "yes", "no", "on",
                                                   "off",  "null",  "y",   "n"};
  return std::find(kWords.begin(), kWords.end(), lower(text)) != kWords.end();
}

}  // namespace

std::string yaml_scalar(std::string_view text) {
  // Begins with a letter or '/': no number, no date, no sign of YAML's own.
  bool plain = !text.empty() && (is_letter(text[0]) || text[0] == '/') && !is_reserved(text) &&
               text.back() != ':';
  for (char c : text) {
    bool inside = is_letter(c) || (c >= '0' && c <= '9') ||
                  std::string_view("-_./:").find(c) != std::string_view::npos;
    plain &= inside;
  }
  if (plain) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += format("\\x%02x", static_cast<unsigned>(byte));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

void YamlText::line(std::string_view content, std::string_view comment) {
  std::string indent(static_cast<size_t>(2 * depth_), ' ');
  if (begins_item_) indent.replace(indent.size() - 2, 2, "- ");
  begins_item_ = false;
  text_ += cat(indent, content, comment.empty() ? "" : cat("  # ", comment), "\n");
}

YamlText::Level YamlText::inside(std::string_view key, std::string_view comment) {
  line(cat(key, ":"), comment);
  return Level(*this);
}

YamlText::Level YamlText::item() {
  begins_item_ = true;
  return Level(*this);
}

void YamlText::value(std::string_view text) { line(cat("- ", yaml_scalar(text)), ""); }

void YamlText::value(int64_t number) { line(cat("- ", number), ""); }

void YamlText::field(std::string_view key, std::string_view text, std::string_view comment) {
  line(cat(key, ": ", yaml_scalar(text)), comment);
}

void YamlText::number(std::string_view key, int64_t value, std::string_view comment) {
  line(cat(key, ": ", value), comment);
}

void YamlText::boolean(std::string_view key, bool value, std::string_view comment) {
  line(cat(key, ": ", value), comment);
}

void YamlText::comment(std::string_view text) {
  text_ += cat(std::string(static_cast<size_t>(2 * depth_), ' '), "# ", text, "\n");
}

}  // namespace tessera
