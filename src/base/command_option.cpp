#include "base/command_option.h"

#include <algorithm>

namespace tessera {
namespace {

// Without dashes in front.
std::string name_in(std::string_view spelling) {
  spelling.remove_prefix(spelling.starts_with("--") ? 2 : spelling.starts_with("-") ? 1 : 0);
  std::string name(spelling);
  std::ranges::replace(name, '-', '_');
  return name;
}

auto find_in(const std::vector<OptionText>& list, std::string_view word) {
  const std::string name = name_in(word.substr(0, word.find('=')));
  return std::ranges::find_if(list, [&](const OptionText& option) {
    return is_option(word) && (name == option.name || (!name.empty() && name == option.alias));
  });
}

// What stands behind an option in place of its value. Options of another program may be called as
// some of the list.
bool is_no_value(const std::vector<OptionText>& list, const OptionText& option,
                 std::string_view word) {
  return option.value != kOtherProgramsOption &&
         (is_help(word) || find_in(list, word) != list.end());
}

}  // namespace

bool is_help(std::string_view word) { return word == "--help" || word == "-h"; }

bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && !is_help(word);
}

GivenOption take_option(const std::vector<OptionText>& list, std::span<const std::string>& words,
                        const UnknownOptionHint& hint) {
  const std::string& word = words[0];
  const size_t equals = word.find('=');
  const auto option = find_in(list, word);
  GivenOption given{static_cast<size_t>(option - list.begin()), word.substr(0, equals), ""};
  if (option == list.end()) {
    const std::string name = name_in(given.spelling);
    if (name.empty()) throw UsageError(cat("'", word, "' has no name"));
    std::vector<std::string> names;
    for (const OptionText& known : list) names.emplace_back(known.name);
    const std::string close = nearest(name, names);
    throw UsageError(
        cat("unknown option ", given.spelling, hint.of,
            close.empty() ? (hint.end.empty() ? "" : ".") : cat("; did you mean --", close, "?"),
            hint.end));
  }
  words = words.subspan(1);
  if (equals != std::string::npos) {
    given.value = word.substr(equals + 1);
  } else if (!option->value.empty()) {
    if (words.empty() || is_no_value(list, *option, words[0]))
      throw UsageError(cat(given.spelling, " needs a value (", option->value, ")"));
    given.value = words[0];
    words = words.subspan(1);
  }
  return given;
}

std::string option_lines(const std::vector<OptionText>& list, std::string_view word) {
  std::string lines;
  for (const OptionText& option : list) {
    const std::string all = lower(cat(option.name, " ", option.alias, " ", option.help));
    if (all.find(lower(word)) == std::string::npos) continue;
    std::string name = cat("--", option.name, option.value.empty() ? "" : " ", option.value);
    if (!option.alias.empty()) name += cat(option.alias.size() == 1 ? ", -" : ", --", option.alias);
    lines += format("  %-34s %s\n", name.c_str(), std::string(option.help).c_str());
  }
  return lines;
}

bool boolean(const std::string& text, const std::string& spelling) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes") return true;
  if (word == "0" || word == "false" || word == "no") return false;
  throw UsageError(cat(spelling, " must be true or false: it is '", text, "'"));
}

std::string one_of(std::initializer_list<std::string_view> words, const std::string& text,
                   const std::string& spelling) {
  if (std::ranges::find(words, text) != words.end()) return text;
  throw UsageError(cat(spelling, " is one of ", join(words, ", "), ": it is '", text, "'"));
}

}  // namespace tessera
