#pragma once
#include <cstdint>
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
  size_t line = 0;                 // of the whole text, from 1
  // nullptr where there is no such field.
  const YamlValue* find(std::string_view name) const;
};

// The value behind `name:` at the beginning of a line, in the part of YAML that is written by hand
// and by Hugging Face's tools to describe data sets: lists and maps in lines, [...] and {...} in
// one, plain and quoted texts of one line. `first_line` is the number of the text's first line.
// An empty map where there is no such line. UserError "line N: ..." for everything else (anchors,
// tags, texts of several lines), tabs that indent, a name twice, more than 16 levels.
YamlValue yaml_field(std::string_view text, std::string_view name, size_t first_line);

}  // namespace tessera
