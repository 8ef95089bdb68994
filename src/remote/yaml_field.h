#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A value in YAML. Numbers and truth values are texts.
struct YamlValue {
  enum class Kind : uint8_t { kText, kList, kMap };
  Kind kind = Kind::kText;
  std::string text;                // null: empty
  std::vector<std::string> names;  // of a map, none twice ...
  std::vector<YamlValue> items;    // ... and its values, or those of a list
  size_t line = 0;                 // from 1
  // nullptr where there is no such field.
  const YamlValue* find(std::string_view name) const;
};

// The value of that name of the map that a document is, by libyaml; nullopt where there is none, or
// the document is no map. Of a name that comes twice in a map the last value counts. UserError
// "line N: ..." where it is no YAML, has more than 64 levels, or more than a million values with
// those that aliases repeat.
std::optional<YamlValue> yaml_field(std::string_view document, std::string_view name);

}  // namespace tessera
