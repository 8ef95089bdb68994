#include "remote/hub_card.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "remote/yaml_field.h"

namespace tessera {
namespace {

using Kind = YamlValue::Kind;

constexpr size_t kMaxPatternBytes = 1024, kMaxPatterns = 100'000;  // of all configurations

[[noreturn]] void refuse(const YamlValue& value, std::string_view why) {
  throw UserError(cat("line ", value.line, ": ", why));
}

const std::string& text_of(const YamlValue& value, std::string_view what) {
  if (value.kind != Kind::kText || value.text.empty()) refuse(value, cat(what, " is no text"));
  return value.text;
}

// Of what lies in the repository.
std::string pattern_of(const YamlValue& value) {
  std::string_view pattern = text_of(value, "a path");
  while (pattern.starts_with("./")) pattern.remove_prefix(2);
  const bool leads_out =
      pattern.find("://") != pattern.npos || pattern.starts_with('/') ||
      std::ranges::any_of(split(pattern, '/'), [](auto part) { return part == ".."; });
  if (leads_out) refuse(value, cat("the path '", pattern.substr(0, 80), "' leads elsewhere"));
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) refuse(value, "a path is no pattern");
  return std::string(pattern);
}

std::vector<std::string> patterns_of(const YamlValue& value) {
  if (value.kind != Kind::kList) return {pattern_of(value)};
  std::vector<std::string> patterns;
  for (const YamlValue& item : value.items) patterns.push_back(pattern_of(item));
  if (patterns.empty()) refuse(value, "a list of paths is empty");
  return patterns;
}

// A path or paths of the training data, or by splits: a map, or a list of maps.
std::vector<CardSplit> splits_of(const YamlValue& files) {
  std::vector<CardSplit> splits;
  const auto add = [&](const YamlValue& where, std::string name, const YamlValue& paths) {
    if (std::ranges::any_of(splits, [&](const CardSplit& s) { return s.name == name; }))
      refuse(where, cat("split '", name, "' comes twice"));
    splits.push_back({std::move(name), patterns_of(paths)});
  };
  const bool by_split =
      files.kind == Kind::kList &&
      std::ranges::any_of(files.items, [](const auto& i) { return i.kind == Kind::kMap; });
  if (files.kind == Kind::kMap) {
    for (size_t i = 0; i < files.names.size(); ++i)
      add(files.items[i], files.names[i], files.items[i]);
  } else if (by_split) {
    for (const YamlValue& item : files.items) {
      const YamlValue *split = item.find("split"), *path = item.find("path");
      if (!split || !path || item.names.size() != 2)
        refuse(item, "files are not given by `split` and `path`");
      add(item, text_of(*split, "a split"), *path);
    }
  } else {
    splits.push_back({"train", patterns_of(files)});
  }
  return splits;
}

bool is_true(const YamlValue& value) {
  const std::string text = lower(text_of(value, "default"));
  const bool yes = text == "true" || text == "yes" || text == "on";
  if (!yes && text != "false" && text != "no" && text != "off")
    refuse(value, "default is neither true nor false");
  return yes;
}

CardConfig config_of(const YamlValue& value) {
  if (value.kind != Kind::kMap) refuse(value, "a configuration is no map");
  CardConfig config;
  const YamlValue* name = value.find("config_name");
  config.name = name ? text_of(*name, "config_name") : "default";
  if (const YamlValue* usual = value.find("default")) config.is_default = is_true(*usual);
  const YamlValue *files = value.find("data_files"), *directory = value.find("data_dir");
  if (files && directory) refuse(value, "data_files of a data_dir are not read");
  if (files) config.splits = splits_of(*files);
  if (directory) {
    const std::string below = directory->text == "." ? "" : pattern_of(*directory);
    const bool is_whole = below.empty() || below.ends_with('/');
    config.splits = {{"", {cat(below, is_whole ? "**" : "/**")}}};
  }
  return config;
}

// What stands between two lines of three dashes at the beginning, with the first; empty where there
// is no such.
std::string_view front_of(std::string_view readme) {
  if (readme.starts_with("\xef\xbb\xbf")) readme.remove_prefix(3);
  readme.remove_prefix(std::min(readme.find_first_not_of(" \t\r\n"), readme.size()));
  if (!readme.starts_with("---\n") && !readme.starts_with("---\r\n")) return {};
  for (size_t at = readme.find('\n') + 1; at < readme.size();) {
    const size_t end = std::min(readme.find('\n', at), readme.size());
    if (trim(readme.substr(at, end - at)) == "---" && readme[at] == '-')
      return readme.substr(0, at);
    at = end + 1;
  }
  return {};
}

}  // namespace

const CardConfig* HubCard::find(std::string_view name) const {
  const auto found = std::ranges::find(configs, name, &CardConfig::name);
  return found == configs.end() ? nullptr : &*found;
}

std::optional<CardConfig> HubCard::named(std::string_view name) const {
  if (const CardConfig* whole = name.empty() ? usual() : find(name)) return *whole;
  const size_t slash = name.rfind('/');
  const CardConfig* of = slash == name.npos ? usual() : find(name.substr(0, slash));
  if (!of) return {};
  CardConfig alone = *of;
  std::erase_if(alone.splits, [&](const CardSplit& part) {
    return part.name != name.substr(slash == name.npos ? 0 : slash + 1);
  });
  return alone.splits.empty() ? std::nullopt : std::optional(alone);
}

const CardConfig* HubCard::usual() const {
  if (configs.size() == 1) return &configs[0];
  const auto found = std::ranges::find_if(
      configs, [](const CardConfig& c) { return c.is_default || c.name == "default"; });
  return found == configs.end() ? nullptr : &*found;
}

HubCard parse_hub_card(std::string_view readme) {
  HubCard card;
  try {
    const auto configs = yaml_field(front_of(readme), "configs");
    if (!configs || (configs->kind == Kind::kText && configs->text.empty())) return card;
    if (configs->kind != Kind::kList) refuse(*configs, "configs is no list");
    size_t usual = 0, patterns = 0;
    for (const YamlValue& item : configs->items) {
      CardConfig config = config_of(item);
      if (card.find(config.name)) refuse(item, cat("'", config.name, "' comes twice"));
      usual += config.is_default || config.name == "default";
      for (const CardSplit& part : config.splits) patterns += part.patterns.size();
      if (patterns > kMaxPatterns) refuse(item, "there are too many paths");
      card.configs.push_back(std::move(config));
    }
    if (usual > 1) refuse(*configs, "several configurations are the default");
  } catch (const UserError& error) {
    card.configs.clear();
    card.flaw = error.what();
  }
  return card;
}

}  // namespace tessera
