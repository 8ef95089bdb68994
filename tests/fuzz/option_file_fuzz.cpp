#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "options/option_listing.h"

// A configuration file for `tessera plan`. Whatever is accepted is listed by --print_config as a
// file that says the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto parse = [](const std::string& text) {
    return parse_options(
        std::vector<std::string>{"--config=fuzz.toml"}, OptionScope::kPlan,
        [](const char*) { return std::nullopt; }, [&](const std::string&) { return text; });
  };
  try {
    ParsedOptions parsed = parse({reinterpret_cast<const char*>(data), size});
    std::string listing = option_listing(parsed, ModelConfig{});
    ParsedOptions again = parse(listing);
    TESSERA_CHECK(again.config == parsed.config, listing);
    TESSERA_CHECK(again.given.size() == parsed.given.size(), listing);
  } catch (const UserError&) {
  }
  return 0;
}
