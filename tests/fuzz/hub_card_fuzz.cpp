#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "remote/hub_card.h"
#include "remote/hub_listing.h"
#include "remote/path_pattern.h"

// Any bytes as the card of a data set: configurations whose patterns stay in the repository, or a
// flaw; and as a pattern and a path.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const HubCard card = parse_hub_card(text);
  if (!card.flaw.empty() && !card.configs.empty()) std::abort();
  for (const CardConfig& config : card.configs) {
    if (card.find(config.name) != &config) std::abort();
    for (const CardSplit& split : config.splits)
      for (const std::string& pattern : split.patterns)
        if (pattern.empty() || pattern[0] == '/' || pattern.starts_with("../")) std::abort();
  }
  try {
    choose_card_files(card, {{"a/train.json", 1, "", "", ""}, {"b.json", 1, "", "", ""}}, "", "o");
  } catch (const UserError&) {
  }
  if (size < 4096) {
    const size_t half = text.find('\n') == text.npos ? size / 2 : text.find('\n');
    matches_path_pattern(text.substr(half), text.substr(0, half));
  }
  return 0;
}
