#include <cstdio>

#include "apps/command_overview.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

// A text of the page: a backslash and a leading dot or quote mean something to troff.
std::string roff(std::string_view text, bool option = false) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-' && option) {
      out += "\\-";
    } else if (c == '\n') {
      out += ' ';
    } else {
      out += c;
    }
  }
  return out.starts_with(".") || out.starts_with("'") ? "\\&" + out : out;
}

std::string option_text(const OverviewOption& option) {
  std::string text = cat(".TP\n\\fB", roff(cat("--", option.name), true), "\\fR");
  for (const std::string& alias : option.aliases)
    text += cat(", \\fB", roff(alias.starts_with("-") ? alias : cat("--", alias), true), "\\fR");
  if (!option.value.empty()) text += cat(" \\fI", roff(option.value), "\\fR");
  return text + cat("\n", roff(option.help), "\n");
}

std::string page() {
  std::string text = cat(".TH TESSERA 1 \"\" \"tessera ", TESSERA_VERSION, "\"\n", R"(.SH NAME
tessera \- train large language models
.SH SYNOPSIS
\fBtessera\fR \fICOMMAND\fR [\fIOPTIONS\fR]
.SH DESCRIPTION
Trains large language models from one native program. \fBtessera\fR \fICOMMAND\fR \fB\-\-help\fR explains a command with
examples. Options may be written with hyphens in place of underscores.
.SH COMMANDS
)");
  std::vector<CommandOverview> commands = command_overviews();
  for (const CommandOverview& command : commands) {
    std::string actions = join(command.actions, "|");
    text += cat(".TP\n\\fB", command.name, "\\fR", actions.empty() ? "" : " ", actions, "\n",
                roff(command.summary), "\n");
  }
  const CommandOverview* train = nullptr;
  for (const CommandOverview& command : commands)
    if (command.name == "train") train = &command;
  for (const CommandOverview& command : commands) {
    if (command.options.empty()) continue;
    auto is_of_train = [&](const OverviewOption& option) {
      if (&command == train) return false;
      for (const OverviewOption& other : train->options)
        if (other.name == option.name && other.help == option.help) return true;
      return false;
    };
    bool some = false;
    text += cat(".SH OPTIONS OF ", command.name, "\n");
    for (const OverviewOption& option : command.options) {
      some |= is_of_train(option);
      if (!is_of_train(option)) text += option_text(option);
    }
    if (some) text += cat(".PP\nAnd of those of \\fBtrain\\fR: ");
    std::string names;
    for (const OverviewOption& option : command.options)
      if (is_of_train(option))
        names += cat(names.empty() ? "" : ", ", "\\fB", roff(cat("--", option.name), true), "\\fR");
    if (some) text += cat(names, ".\n");
  }
  return text + R"(.SH EXIT STATUS
0: success; 1: a failure; 2: a wrong command line; 143: a run that was asked to end and has saved.
.SH LICENSE
Apache License 2.0.
)";
}

}  // namespace

int manual_command(std::span<const std::string> arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs(
        "Usage: tessera manual\n\nPrints the manual page of all commands and options: "
        "tessera manual | man -l -\n",
        stdout);
    return 0;
  }
  if (!arguments.empty()) throw UsageError("manual takes no words: tessera manual | man -l -");
  std::fputs(page().c_str(), stdout);
  return 0;
}

}  // namespace tessera
