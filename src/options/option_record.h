#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options/run_config.h"

namespace tessera {

// All options, name and value, sorted by name; as without_secrets().
std::vector<std::pair<std::string, std::string>> option_values(const RunConfig& config);

// All options as one JSON object in UTF-8 (other bytes become U+FFFD), for the record of a run and
// for checkpoints: booleans, numbers, strings and lists of strings; null for an empty optional; a
// float that is not finite as a string. run_config_from_json(run_config_json(c)) == c.
std::string run_config_json(const RunConfig& config);

// The same options with the paths that a run reads from, where they are there, as absolute ones:
// its record means the same from every directory.
RunConfig with_absolute_paths(RunConfig config);

// The same options with the names of models and tokenizers that were fetched,
// hf://OWNER/NAME@COMMIT, in the place of their directories in a cache: they mean the same on every
// machine.
RunConfig with_model_names(RunConfig config);

// The same options with addresses as masked_url() has them: what is recorded or shown is read by
// others than who gave it. set_option() takes no such address.
RunConfig without_secrets(RunConfig config);

// Options that are absent take their defaults. UserError, naming the option: text that is no JSON
// object or larger than 1 MiB, an unknown option, a value that does not fit the option's row.
RunConfig run_config_from_json(std::string_view text);

}  // namespace tessera
