#pragma once
#include <span>
#include <string>
#include <string_view>

#include "launch/run_options.h"

namespace tessera {

// One option of `tessera run`.
struct RunOptionRow {
  std::string_view name;   // with underscores; hyphens mean the same
  std::string_view alias;  // "nnode", or a short form "-r"
  std::string_view value;  // what --help calls it; empty: a flag
  std::string_view help;
  void (*set)(RunOptions& options, const std::string& value, const std::string& spelling);
};

std::span<const RunOptionRow> run_option_table();

}  // namespace tessera
