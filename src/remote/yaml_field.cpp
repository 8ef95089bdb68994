#include "remote/yaml_field.h"

#include <yaml.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int kMaxLevels = 64;
constexpr int64_t kMaxValues = 1'000'000;
constexpr int64_t kTextOfAValue = 64;  // bytes: a longer one counts as several

[[noreturn]] void refuse(size_t line, std::string_view why) {
  throw UserError(cat("line ", line, ": ", why));
}

// Made of libyaml's events. Its own trees of documents take a time that grows with the square of
// the depth and of the number of anchors, which are a stranger's choice.
class YamlDocument {
 public:
  explicit YamlDocument(std::string_view text) {
    if (!yaml_parser_initialize(&parser_)) throw UserError("no memory for YAML");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~YamlDocument() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlDocument(const YamlDocument&) = delete;
  YamlDocument& operator=(const YamlDocument&) = delete;

  // That of the whole; a null where there is nothing.
  YamlValue value() {
    while (event_.type != YAML_DOCUMENT_START_EVENT) {
      next();
      if (event_.type == YAML_STREAM_END_EVENT) return {};
    }
    next();
    YamlValue whole = value(0);
    next();  // an error behind it is one of it
    return whole;
  }

 private:
  void next() {
    yaml_event_delete(&event_);
    if (!yaml_parser_parse(&parser_, &event_))
      refuse(parser_.problem_mark.line + 1, parser_.problem ? parser_.problem : "no memory for it");
  }

  // The value that begins with the event; it is at its last one then.
  YamlValue value(int depth) {
    YamlValue value;
    value.line = event_.start_mark.line + 1;
    if (depth == kMaxLevels) refuse(value.line, "it has too many levels");
    count(value.line, 1);
    const int64_t before = values_;
    std::string anchor;
    switch (event_.type) {
      case YAML_ALIAS_EVENT: {
        const std::string name = text_of(event_.data.alias.anchor);
        const auto found = anchors_.find(name);
        if (found == anchors_.end()) refuse(value.line, cat("'*", name, "' stands for nothing"));
        count(value.line, found->second.values);
        return found->second.value;
      }
      case YAML_SEQUENCE_START_EVENT:
        anchor = text_of(event_.data.sequence_start.anchor);
        value.kind = YamlValue::Kind::kList;
        for (next(); event_.type != YAML_SEQUENCE_END_EVENT; next())
          value.items.push_back(this->value(depth + 1));
        break;
      case YAML_MAPPING_START_EVENT:
        anchor = text_of(event_.data.mapping_start.anchor);
        read_map(value, depth);
        break;
      default:
        anchor = text_of(event_.data.scalar.anchor);
        value.text = scalar();
        count(value.line, std::ssize(value.text) / kTextOfAValue);
    }
    if (!anchor.empty()) {
      const int64_t kept = values_ - before;
      count(value.line, kept);
      anchors_[anchor] = {value, kept};
    }
    return value;
  }

  void read_map(YamlValue& map, int depth) {
    map.kind = YamlValue::Kind::kMap;
    std::map<std::string, size_t> places;
    const auto add = [&](const std::string& name, YamlValue item, bool replaces) {
      const auto [place, is_new] = places.try_emplace(name, map.items.size());
      if (is_new) {
        map.names.push_back(name);
        map.items.push_back(std::move(item));
      } else if (replaces) {
        map.items[place->second] = std::move(item);
      }
    };
    std::vector<YamlValue> merged;  // `<<`: a map, or maps, of what is not said here
    for (next(); event_.type != YAML_MAPPING_END_EVENT; next()) {
      const YamlValue name = value(depth + 1);
      if (name.kind != YamlValue::Kind::kText) refuse(name.line, "a name is no text");
      next();
      YamlValue item = value(depth + 1);
      if (name.text != "<<")
        add(name.text, std::move(item), true);
      else if (item.kind == YamlValue::Kind::kList)
        std::ranges::move(item.items, std::back_inserter(merged));
      else
        merged.push_back(std::move(item));
    }
    for (YamlValue& from : merged) {
      if (from.kind != YamlValue::Kind::kMap) refuse(from.line, "'<<' is no map");
      for (size_t i = 0; i < from.names.size(); ++i)
        add(from.names[i], std::move(from.items[i]), false);
    }
  }

  void count(size_t line, int64_t more) {
    values_ += more;
    if (values_ > kMaxValues) refuse(line, "it has too many values");
  }

  std::string scalar() const {
    const auto& from = event_.data.scalar;
    std::string text(reinterpret_cast<const char*>(from.value), from.length);
    const bool is_null = from.style == YAML_PLAIN_SCALAR_STYLE &&
                         (text == "~" || text == "null" || text == "Null" || text == "NULL");
    return is_null ? "" : text;
  }

  static std::string text_of(const yaml_char_t* name) {
    return name ? reinterpret_cast<const char*>(name) : "";
  }

  struct Anchored {
    YamlValue value;
    int64_t values = 0;  // that it has in itself
  };
  yaml_parser_t parser_;
  yaml_event_t event_{};
  std::map<std::string, Anchored> anchors_;
  int64_t values_ = 0;
};

}  // namespace

const YamlValue* YamlValue::find(std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? nullptr : &items[static_cast<size_t>(found - names.begin())];
}

std::optional<YamlValue> yaml_field(std::string_view document, std::string_view name) {
  if (document.empty()) return {};  // libyaml takes no null
  const YamlValue whole = YamlDocument(document).value();
  const YamlValue* field = whole.find(name);
  return field ? std::optional(*field) : std::nullopt;
}

}  // namespace tessera
