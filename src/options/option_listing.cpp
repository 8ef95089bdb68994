#include "options/option_listing.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "options/model_options.h"
#include "options/option_record.h"

namespace tessera {
namespace {

// A basic string of TOML (v1.0, "String").
std::string toml(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      out += format("\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}
std::string toml(bool value) { return value ? "true" : "false"; }
std::string toml(int64_t value) { return cat(value); }
std::string toml(double value) { return cat(value); }
std::string toml(const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& value : values) words.push_back(toml(value));
  return cat("[", join(words, ", "), "]");
}
template <class T>
std::string toml(const std::optional<T>& value) {
  return value ? toml(*value) : toml(std::string("None"));
}

// "None" for an empty text, of which the command line knows no other.
struct ValueOf {
  const RunConfig& config;
  template <class T>
  std::string operator()(T RunConfig::*field) const {
    return toml(config.*field);
  }
  std::string operator()(std::string RunConfig::*field) const {
    const std::string& text = config.*field;
    return toml(text.empty() ? "None" : text);
  }
};

// "Learning rate" is [learning_rate], "Steps, optimizer, seed" [steps].
std::string section(std::string_view group) {
  std::string name = lower(group.substr(0, group.find(',')));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// A comment holds no control characters; a path in it may.
std::string comment(std::string text) {
  auto foreign = [](char c) { return static_cast<unsigned char>(c - ' ') > '~' - ' '; };
  std::replace_if(text.begin(), text.end(), foreign, '?');
  return text;
}

}  // namespace

std::string option_listing(const ParsedOptions& parsed, const ModelConfig& model) {
  std::string_view source = model_source(parsed);
  const RunConfig given = without_secrets(parsed.config);
  RunConfig effective = given;
  if (!source.empty()) set_shape(effective, model);
  std::string out = cat("# Options of tessera ", name(parsed.scope),
                        ". Give them back with --config FILE. Comments are what holds unsaid.\n");
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    bool about_files = row.name == "config" || row.name == "print_config";
    if (!(row.scopes & in(parsed.scope)) || about_files) continue;
    if (row.group != group) out += cat("\n[", section(row.group), "]\n");
    group = row.group;
    std::string said = std::visit(ValueOf{given}, row.field);
    std::string holds = std::visit(ValueOf{effective}, row.field);
    std::string setting = cat("# ", row.name, " = ", holds), origin;
    if (auto at = parsed.given.find(row.name); at != parsed.given.end()) {
      setting = cat(row.name, " = ", said);
      origin = comment(at->second);
      if (said != holds) origin += cat("; --", source, " has ", comment(holds));
    } else if (said != holds) {
      origin = cat("--", source);
    } else if (said != std::visit(ValueOf{RunConfig{}}, row.field)) {
      origin = "follows from another option";
    } else {
      origin = row.unset == "none" ? "default" : cat("default: ", row.unset);
    }
    out += cat(setting, std::string(setting.size() < 46 ? 46 - setting.size() : 0, ' '), "  # ",
               origin, "\n");
  }
  return out;
}

}  // namespace tessera
