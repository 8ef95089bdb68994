#include "options/option_parser.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "options/option_rules.h"

namespace tessera {
namespace {

bool takes_words(OptionScope scope) {
  return scope != OptionScope::kTrain && scope != OptionScope::kPlan;
}

// Whether all words that follow belong to the option.
bool is_list(const OptionRow& row) {
  return std::holds_alternative<std::vector<std::string> RunConfig::*>(row.field) &&
         row.form != ValueForm::kRepeated;
}

// What is left of a comment or a blank that follows a line-continuation backslash.
bool looks_like_comment(std::string_view word) {
  std::string_view text = trim(word);
  return text.empty() || text.front() == '#' || text == "\\";
}

bool is_value(std::string_view word) {
  return !word.starts_with("--") && word != "-h" && !looks_like_comment(word);
}

std::string underscored(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

class Parser {
 public:
  Parser(std::span<const std::string> arguments, OptionScope scope) : arguments_(arguments) {
    parsed_.scope = scope;
  }

  ParsedOptions run(const EnvironmentLookup& environment, const OptionFileReader& read_file) {
    while (next_ < arguments_.size() && !parsed_.help) read_one(arguments_[next_++]);
    if (parsed_.help) return std::move(parsed_);
    take_files(read_file);
    take_environment(environment);
    warn_of_repetitions();
    apply_option_rules(parsed_);
    return std::move(parsed_);
  }

 private:
  void read_one(const std::string& argument) {
    if (argument == "--help" || argument == "-h") {
      parsed_.help = true;
      bool word = next_ < arguments_.size() && !arguments_[next_].starts_with("-");
      if (word) parsed_.help_word = arguments_[next_];
    } else if (argument.starts_with("--help=")) {
      parsed_.help = true;
      parsed_.help_word = argument.substr(argument.find('=') + 1);
    } else if (argument.size() > 2 && argument.starts_with("--")) {
      read_option(argument);
    } else if (takes_words(parsed_.scope) && is_value(argument) && !argument.starts_with("-") &&
               !is_one_too_many()) {
      parsed_.words.push_back(argument);
      bare_boolean_.clear();
    } else {
      refuse_stray(argument);
    }
  }

  // Behind a boolean, of a command that takes one word and has it.
  bool is_one_too_many() const {
    return parsed_.scope == OptionScope::kGenerate && !parsed_.words.empty() &&
           !bare_boolean_.empty();
  }

  void read_option(const std::string& argument) {
    bare_boolean_.clear();
    size_t equals = argument.find('=');
    std::string spelling = argument.substr(0, equals);
    if (spelling.find_first_of(" \t\n") != std::string::npos) refuse_blank(spelling);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    std::string_view bare = std::string_view(spelling).substr(2);
    if (const OptionBundle* bundle = find_bundle(bare))
      return read_bundle(*bundle, spelling, value);
    const OptionRow& row = usable_row(bare, spelling);
    set(row, words_for(row, spelling, value), spelling);
  }

  void read_bundle(const OptionBundle& bundle, const std::string& spelling,
                   const std::optional<std::string>& value) {
    size_t count = bundle_values(bundle);
    std::vector<std::string> values;
    auto add = [&](std::string_view text) {  // also "0.9,0.95" and "(0.9, 0.95)"
      for (std::string_view part : split(text, ',')) {
        std::string word(trim(part));
        std::erase_if(word, [](char c) {
          return std::string_view("()[]").find(c) != std::string_view::npos;
        });
        if (!word.empty()) values.push_back(word);
      }
    };
    if (value) add(*value);
    while (!value && values.size() < count && next_ < arguments_.size() &&
           is_value(arguments_[next_])) {
      add(arguments_[next_++]);
    }
    set_bundle(bundle, values, spelling,
               [&](const OptionRow& row, const auto& words) { set(row, words, spelling); });
  }

  static size_t bundle_values(const OptionBundle& bundle) {
    return bundle.one_value_each ? bundle.targets.size() : 1;
  }

  template <class Set>
  void set_bundle(const OptionBundle& bundle, const std::vector<std::string>& values,
                  const std::string& spelling, const Set& set_target) {
    if (size_t count = bundle_values(bundle); values.size() != count) {
      throw UsageError(cat(spelling, " expects ", count, count == 1 ? " value" : " values",
                           ": it has ", values.size()));
    }
    for (size_t i = 0; i < bundle.targets.size(); ++i) {
      const OptionRow& row = usable_row(bundle.targets[i], spelling);
      set_target(row, std::vector{values[bundle.one_value_each ? i : 0]});
    }
  }

  // The words that belong to an option, taken from behind it unless `=` gave one.
  std::vector<std::string> words_for(const OptionRow& row, const std::string& spelling,
                                     const std::optional<std::string>& value) {
    if (value) return {*value};
    std::vector<std::string> words;
    bool boolean = std::holds_alternative<bool RunConfig::*>(row.field);
    auto more = [&] {
      return next_ < arguments_.size() && is_value(arguments_[next_]) &&
             (!boolean || parse_boolean(arguments_[next_])) && (words.empty() || is_list(row));
    };
    while (more()) words.push_back(arguments_[next_++]);
    if (!words.empty()) return words;
    bare_boolean_ = boolean ? spelling : "";
    if (boolean) return {"True"};
    if (row.form == ValueForm::kOptional) return {"None"};
    throw UsageError(cat(spelling, " needs a value (", type_name(row),
                         "); an empty one, or one that starts with -- or #, is given as ", spelling,
                         "=VALUE"));
  }

  // One setting of the command line or the environment.
  void set(const OptionRow& row, const std::vector<std::string>& words, const std::string& spelling,
           const std::string& origin = "command line") {
    if (row.form == ValueForm::kRepeated) {
      std::vector<std::string>& all = repeated_[row.name];
      all.insert(all.end(), words.begin(), words.end());
      store(row, all, spelling, origin);
      return;
    }
    store(row, words, spelling, origin);
    settings_[row.name].push_back({spelling, value_text(parsed_.config, row)});
  }

  void store(const OptionRow& row, const std::vector<std::string>& words,
             const std::string& spelling, const std::string& origin) {
    set_option(parsed_.config, row, words, spelling);
    parsed_.given[std::string(row.name)] = origin;
    parsed_.spellings.insert(spelling);
  }

  void take_files(const OptionFileReader& read_file) {
    const auto command_line = parsed_.given;
    for (const std::string& path : parsed_.config.config) {
      std::map<std::string_view, std::string> seen;  // options of this file, and where
      for (const FileSetting& setting : parse_option_file(read_file(path), path)) {
        take_setting(setting, [&](const OptionRow& row, const std::vector<std::string>& words,
                                  const std::string& spelling) {
          auto [before, first] = seen.emplace(row.name, setting.where);
          if (!first) {
            throw UsageError(cat(spelling, ": ", row.name, " is already set at ", before->second));
          }
          if (command_line.contains(row.name)) {
            RunConfig unused;  // wrong is wrong, also where it does not count
            set_option(unused, row, words, spelling);
          } else {
            store(row, words, spelling, setting.where);
          }
        });
      }
    }
  }

  template <class Set>
  void take_setting(const FileSetting& setting, const Set& set_row) {
    std::string spelling = cat(setting.where, ": ", setting.key.substr(0, 100));
    if (const OptionBundle* bundle = find_bundle(setting.key)) {
      return set_bundle(*bundle, setting.words, spelling,
                        [&](const OptionRow& row, const std::vector<std::string>& words) {
                          set_row(row, words, spelling);
                        });
    }
    const OptionRow& row = usable_row(setting.key, spelling);
    if (row.name == "config" || row.name == "print_config") {
      throw UsageError(cat(spelling, " belongs on the command line"));
    }
    bool list = is_list(row);
    if (!list && setting.words.size() != 1) {
      throw UsageError(cat(spelling, " expects one value: it has ", setting.words.size()));
    }
    set_row(row, setting.words, spelling);
  }

  void take_environment(const EnvironmentLookup& environment) {
    for (const OptionRow& row : option_table()) {
      bool wanted = !row.environment.empty() && (row.scopes & in(parsed_.scope)) &&
                    !parsed_.is_given(row.name);
      if (!wanted) continue;
      auto value = environment(std::string(row.environment).c_str());
      if (!value || value->empty()) continue;
      std::string origin = cat("environment variable ", row.environment);
      if (parsed_.is_given(row.environment_unless)) {
        parsed_.notes.push_back(
            cat("The ", origin, " is left alone: --", row.environment_unless, " is given"));
        continue;
      }
      set(row, {*value}, origin, origin);
      parsed_.notes.push_back(cat("--", row.name, "=", *value,
                                  " is taken from the environment variable ", row.environment));
    }
  }

  void warn_of_repetitions() {
    for (const OptionRow& row : option_table()) {
      auto it = settings_.find(row.name);
      if (it == settings_.end()) continue;
      const auto& settings = it->second;
      bool differ = std::any_of(settings.begin(), settings.end(),
                                [&](const Setting& s) { return s.value != settings[0].value; });
      if (!differ) continue;
      std::vector<std::string> history;
      for (const Setting& s : settings) history.push_back(cat(s.spelling, " ", s.value));
      parsed_.warnings.push_back(cat("--", row.name, " is given more than once: ",
                                     join(history, ", "), "; the last one wins"));
    }
  }

  static const OptionBundle* find_bundle(std::string_view bare) {
    std::string wanted = underscored(bare);
    const std::vector<OptionBundle>& bundles = option_bundles();
    auto found = std::find_if(bundles.begin(), bundles.end(),
                              [&](const OptionBundle& bundle) { return bundle.name == wanted; });
    return found == bundles.end() ? nullptr : &*found;
  }

  // The row with this name, which must be an option of this command.
  const OptionRow& usable_row(std::string_view bare, const std::string& spelling) const {
    const OptionRow* found = find_option(bare);
    if (!found) refuse_unknown(spelling, bare);
    const OptionRow& row = *found;
    if (row.scopes & in(parsed_.scope)) return row;
    std::vector<std::string> commands;
    for (int i = 0; i <= static_cast<int>(kLastScope); ++i) {
      auto scope = static_cast<OptionScope>(i);
      if (row.scopes & in(scope)) commands.push_back(cat("tessera ", name(scope)));
    }
    throw UsageError(cat(spelling, " is not an option of tessera ", name(parsed_.scope), " but of ",
                         join(commands, ", ")));
  }

  [[noreturn]] void refuse_unknown(const std::string& spelling, std::string_view bare) const {
    std::vector<std::string> known;
    auto usable = [&](const OptionRow& row) { return (row.scopes & in(parsed_.scope)) != 0; };
    for (const OptionRow& row : option_table()) {
      if (!usable(row)) continue;
      known.emplace_back(row.name);
      known.insert(known.end(), row.aliases.begin(), row.aliases.end());
    }
    for (const OptionBundle& bundle : option_bundles()) {
      if (usable(*find_option(bundle.targets[0]))) known.emplace_back(bundle.name);
    }
    // Far longer words than any option are not compared: the distance costs their length.
    std::string close = bare.size() <= 100 ? nearest(underscored(bare), known) : "";
    bool in_file = !spelling.starts_with("--");
    throw UsageError(cat(in_file ? cat(spelling, ": unknown option")
                                 : cat("unknown option ", spelling.substr(0, 100)),
                         close.empty() ? cat("; see tessera ", name(parsed_.scope), " --help")
                                       : cat("; did you mean ", in_file ? "" : "--", close, "?")));
  }

  [[noreturn]] void refuse_blank(const std::string& spelling) const {
    size_t blank = spelling.find_first_of(" \t\n");
    std::string option = spelling.substr(0, blank);
    std::string_view rest = trim(std::string_view(spelling).substr(blank));
    throw UsageError(cat("'", spelling.substr(0, 100),
                         "' holds an option, a blank and a value in one string: write '", option,
                         "=", rest.substr(0, 60), "', or two strings"));
  }

  [[noreturn]] void refuse_stray(const std::string& word) const {
    std::string hint = "options start with --";
    if (word.empty()) {
      hint = "an empty word was given: a variable that is not set?";
    } else if (looks_like_comment(word)) {
      hint =
          "a backslash that continues a line must be its last character: neither a blank nor a "
          "comment may follow";
    } else if (!bare_boolean_.empty()) {
      hint = cat("as a value of ", bare_boolean_, ", True, False, 1 or 0 is expected");
    } else if (find_option(std::string_view(word).substr(0, word.find('=')))) {
      hint = cat("did you mean --", word.substr(0, 60), "?");
    }
    throw UsageError(cat("stray word '", word.substr(0, 60), "': ", hint));
  }

  struct Setting {
    std::string spelling, value;
  };

  std::span<const std::string> arguments_;
  size_t next_ = 0;
  ParsedOptions parsed_;
  std::map<std::string_view, std::vector<std::string>> repeated_;  // kRepeated: all words so far
  std::string bare_boolean_;  // the boolean just before, when it took no value
  std::map<std::string_view, std::vector<Setting>> settings_;
};

}  // namespace

std::optional<std::string> process_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

ParsedOptions parse_options(std::span<const std::string> arguments, OptionScope scope,
                            const EnvironmentLookup& environment,
                            const OptionFileReader& read_file) {
  return Parser(arguments, scope).run(environment, read_file);
}

}  // namespace tessera
