#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "options/model_options.h"
#include "options/option_record.h"

// The first byte chooses the command, the rest is one argument a line. Whatever is accepted must
// survive the record of a run unchanged.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  auto scope = static_cast<OptionScope>(data[0] % 7);
  std::vector<std::string> arguments;
  for (std::string_view line : split({reinterpret_cast<const char*>(data + 1), size - 1}, '\n')) {
    arguments.emplace_back(line);
  }
  try {
    ParsedOptions parsed = parse_options(
        arguments, scope, [](const char*) { return std::nullopt; },
        [](const std::string&) { return std::string("max_steps = 7"); });
    if (parsed.help) return 0;
    std::string record = run_config_json(parsed.config);
    TESSERA_CHECK(run_config_json(run_config_from_json(record)) == record);
    // What names a file must not open one here.
    const RunConfig& c = parsed.config;
    bool opens = !c.model_config.empty() || !c.pretrained_model_name.empty() ||
                 !c.pretrained_checkpoint_file.empty() ||
                 !c.hf_pretrained_model_name_or_dir.empty() || !c.resume_from_checkpoint.empty();
    if (!opens) resolve_model(parsed);
  } catch (const UserError&) {
  }
  return 0;
}
