#pragma once
#include "train/option_parser.h"

namespace tessera {

// The rules between options, after each has been checked by itself: fine-tuning, what one option
// forces on another, what is not built. Adds warnings and notes; errors as parse_options().
void apply_option_rules(ParsedOptions& parsed);

}  // namespace tessera
