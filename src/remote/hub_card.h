#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What the card of a data set's repository, its README.md, says in `configs:` at its front: which
// files are which configuration and split.
struct CardSplit {
  std::string name;                   // empty: the names of the files tell
  std::vector<std::string> patterns;  // of paths, as of matches_path_pattern()
};
struct CardConfig {
  std::string name;
  bool is_default = false;  // as its card says
  // None: all files of the repository, told by their names.
  std::vector<CardSplit> splits;
};
struct HubCard {
  std::vector<CardConfig> configs;  // none: it says nothing
  std::string flaw;                 // why what it says is not understood, else empty
  // That which is taken where none is named, by the rule of Hugging Face's datasets: the only one,
  // `default`, or what says so of itself. nullptr: none of them.
  const CardConfig* usual() const;
  const CardConfig* find(std::string_view name) const;
  // What is asked for: "" (the usual one), a configuration, a split of the usual one, or
  // CONFIGURATION/SPLIT, which has that split alone.
  std::optional<CardConfig> named(std::string_view name) const;
};

// Any text. `flaw` where its front is no YAML, where patterns lead out of the repository, or where
// Hugging Face's datasets would refuse it.
HubCard parse_hub_card(std::string_view readme);

}  // namespace tessera
