#include <cstdio>
#include <map>

#include "apps/command_overview.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"
#include "cluster/shell_text.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera completion bash|zsh|fish

Prints what makes a shell complete commands, options and their values.

Examples
  source <(tessera completion bash)                            in ~/.bashrc
  tessera completion zsh > ~/.zfunc/_tessera                   in a directory of $fpath
  tessera completion fish > ~/.config/fish/completions/tessera.fish
)";

using Overviews = std::vector<CommandOverview>;
using Words = std::vector<std::string>;

std::string dashed(const std::string& name) { return name.starts_with("-") ? name : "--" + name; }

Words spellings(const OverviewOption& option) {
  Words all{dashed(option.name)};
  for (const std::string& alias : option.aliases) all.push_back(dashed(alias));
  return all;
}

Words names_of(const Overviews& commands) {
  Words names;
  for (const CommandOverview& command : commands) names.push_back(command.name);
  return names;
}

Words starters(const Overviews& commands) {
  Words names;
  for (const CommandOverview& command : commands)
    if (command.starts_commands) names.push_back(command.name);
  return names;
}

// By the spelling of an option: they are of the option table, where a name means one thing.
std::map<std::string, Words> enumerations(const Overviews& commands) {
  std::map<std::string, Words> all;
  for (const CommandOverview& command : commands) {
    for (const OverviewOption& option : command.options) {
      if (option.values.empty()) continue;
      for (const std::string& spelling : spellings(option)) all[spelling] = option.values;
    }
  }
  return all;
}

std::string bash(const Overviews& commands) {
  std::string names = join(names_of(commands), " ");
  std::string text = cat(R"(# Completion of tessera for bash, by `tessera completion bash`.
_tessera() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= options= words= i
  if [[ $word == '=' ]]; then word=; elif [[ $before == '=' ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case $command in
      '' | )",
                         join(starters(commands), " | "), R"()
        case ${COMP_WORDS[i]} in
          )",
                         join(names_of(commands), " | "), R"() command=${COMP_WORDS[i]} ;;
        esac ;;
    esac
  done
  case $command in
    '') words=)",
                         shell_word(names), " options='--help --version' ;;\n");
  for (const CommandOverview& command : commands) {
    Words options{"--help"}, words = command.actions;
    for (const OverviewOption& option : command.options)
      for (const std::string& spelling : spellings(option)) options.push_back(spelling);
    if (command.starts_commands) words.push_back(names);
    text += cat("    ", command.name, ") words=", shell_word(join(words, " ")),
                " options=", shell_word(join(options, " ")), " ;;\n");
  }
  text += "  esac\n  case $before in\n";
  for (const auto& [spelling, values] : enumerations(commands)) {
    text += cat("    ", spelling, ") options= words=", shell_word(join(values, " ")), " ;;\n");
  }
  return text + R"(    --*) [[ $word == -* ]] || words= ;;
  esac
  [[ $word == -* ]] && words=$options
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _tessera tessera
)";
}

// A text between brackets of _arguments, in single quotes.
std::string zsh_help(const std::string& help) {
  std::string text;
  for (char c : help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') text += '\\';
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text;
}

std::string zsh(const Overviews& commands) {
  std::string text = R"(#compdef tessera
# Completion of tessera for zsh, by `tessera completion zsh`.
_tessera() {
  local command= place=1 i
  for ((i = 2; i < CURRENT; i++)); do
    case $command in
      '' | )" + join(starters(commands), " | ") +
                     R"()
        case $words[i] in
          )" + join(names_of(commands), " | ") +
                     R"() command=$words[i] place=$i ;;
        esac ;;
    esac
  done
  local -a commands
  commands=(
)";
  for (const CommandOverview& command : commands)
    text += cat("    '", command.name, ":", zsh_help(command.summary), "'\n");
  text += R"(  )
  shift $((place - 1)) words
  ((CURRENT -= place - 1))
  case $command in
    '') _describe command commands ;;
)";
  for (const CommandOverview& command : commands) {
    text += cat("    ", command.name, ")\n");
    if (!command.actions.empty() || command.starts_commands) {
      Words first = command.actions;
      text += cat("      [[ $words[CURRENT] == -* ]] || compadd -- ", shell_words(first));
      text += command.starts_commands ? " ${commands%%:*}\n" : "\n";
    }
    text += "      _arguments '--help[explain the command and its options]' '*: :_files'";
    for (const OverviewOption& option : command.options) {
      for (const std::string& spelling : spellings(option)) {
        std::string value = option.value.empty() ? ""
                            : option.values.empty()
                                ? ":value:_files"
                                : cat(":value:(", join(option.values, " "), ")");
        bool joins = spelling.starts_with("--") && !value.empty();
        text += cat(" \\\n        '", spelling, joins ? "=" : "", "[", zsh_help(option.help), "]",
                    value, "'");
      }
    }
    text += " ;;\n";
  }
  return text + "  esac\n}\n_tessera \"$@\"\n";
}

// fish takes \\ and \' in single quotes.
std::string fish_word(const std::string& word) {
  std::string text = "'";
  for (char c : word) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

std::string fish(const Overviews& commands) {
  std::string text = "# Completion of tessera for fish, by `tessera completion fish`.\n";
  for (const CommandOverview& command : commands) {
    text += cat("complete -c tessera -n __fish_use_subcommand -a ", command.name, " -d ",
                fish_word(command.summary), "\n");
  }
  for (const CommandOverview& command : commands) {
    std::string begin =
        cat("complete -c tessera -n '__fish_seen_subcommand_from ", command.name, "'");
    Words words = command.actions;
    if (command.name == "run") words.emplace_back("train");
    if (!words.empty()) text += cat(begin, " -a ", fish_word(join(words, " ")), "\n");
    for (const OverviewOption& option : command.options) {
      text += begin;
      for (const std::string& spelling : spellings(option))
        text += spelling.starts_with("--") ? cat(" -l ", spelling.substr(2))
                                           : cat(" -s ", spelling.substr(1));
      if (!option.values.empty()) {
        text += cat(" -x -a ", fish_word(join(option.values, " ")));
      } else if (!option.value.empty()) {
        text += " -r";
      }
      text += cat(" -d ", fish_word(option.help), "\n");
    }
  }
  return text;
}

}  // namespace

int completion_command(std::span<const std::string> arguments) {
  std::string shell = arguments.size() == 1 ? arguments[0] : "";
  std::string text = shell == "bash"                      ? bash(command_overviews())
                     : shell == "zsh"                     ? zsh(command_overviews())
                     : shell == "fish"                    ? fish(command_overviews())
                     : shell == "--help" || shell == "-h" ? kHelp
                                                          : "";
  if (text.empty()) throw UsageError("completion takes the name of a shell: bash, zsh or fish");
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
