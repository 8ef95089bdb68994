#pragma once
#include <string>

#include "models/model_config.h"
#include "options/option_parser.h"

namespace tessera {

// The options of parsed.scope as a configuration file (option_file.h), by group. What was given
// stands as a setting, everything else as a comment: defaults, the shape that `model` has from
// --model_name and its like, what options imply. Behind each its origin. Parsing the file in the
// same scope, with nothing else, gives the same configuration and the same given options, unless
// an address lacks what may hold a secret: then it is refused.
std::string option_listing(const ParsedOptions& parsed, const ModelConfig& model);

}  // namespace tessera
