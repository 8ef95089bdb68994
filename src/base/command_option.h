#pragma once
#include <initializer_list>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {

// OptionText::value of one that is handed on to another program.
constexpr std::string_view kOtherProgramsOption = "OPTION";

// What help says of an option.
struct OptionText {
  std::string_view name;   // with underscores; hyphens mean the same
  std::string_view alias;  // another name, or a letter behind one dash; or empty
  std::string_view value;  // what help calls it; empty: a flag; of kOtherProgramsOption any word
  std::string_view help;
};

// An option of a command that shares none with training: a row of its table. `set` changes what the
// command was told, and throws a UsageError that names `spelling`, how the user wrote the option,
// for a value of another form.
template <class Told>
struct CommandOption : OptionText {
  void (*set)(Told& told, const std::string& value, const std::string& spelling);
};

std::vector<OptionText> texts(const auto& table) { return {std::begin(table), std::end(table)}; }

bool is_help(std::string_view word);
// Begins with a dash, and is neither --help nor `--` or `-` alone.
bool is_option(std::string_view word);

// The option that stands in front of the words.
struct GivenOption {
  size_t index = 0;  // in the list
  std::string spelling, value;
};

// What a UsageError says of an unknown option behind its spelling, and at its end.
struct UnknownOptionHint {
  std::string_view of, end;
};

// Takes the option off the words, with its value: --name value, --name=value, -n value. UsageError
// where it is not in the list, or has no value: a word that is itself an option of the list, or
// --help, is none.
GivenOption take_option(const std::vector<OptionText>& list, std::span<const std::string>& words,
                        const UnknownOptionHint& hint = {});

// The same, which is set. Returns its name.
template <class Told>
std::string_view take_option(std::span<const CommandOption<Told>> table,
                             std::span<const std::string>& words, Told& told,
                             const UnknownOptionHint& hint = {}) {
  const GivenOption given = take_option(texts(table), words, hint);
  table[given.index].set(told, given.value, given.spelling);
  return table[given.index].name;
}

// A line of help an option; with a `word` only of those that have it in their names or help.
std::string option_lines(const std::vector<OptionText>& list, std::string_view word = "");

// Values; a UsageError names the spelling.
template <class Number>
Number number(const std::string& text, Number lowest, Number highest, const std::string& spelling) {
  const auto value = parse_number<Number>(text);
  if (value && *value >= lowest && *value <= highest) return *value;
  const bool bounded = highest < std::numeric_limits<Number>::max();
  throw UsageError(cat(spelling, " must be a number from ", lowest,
                       bounded ? cat(" to ", highest) : " on", ": it is '", text, "'"));
}
bool boolean(const std::string& text, const std::string& spelling);
std::string one_of(std::initializer_list<std::string_view> words, const std::string& text,
                   const std::string& spelling);

}  // namespace tessera
