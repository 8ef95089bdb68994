#pragma once
#include "options/option_parser.h"

namespace tessera {

// UsageError unless the options of a fine-tuning run say where its weights come from, as must be if
// there is no checkpoint to be resumed.
void check_fine_tuning_source(const RunConfig& config);

// The rules between options, after each has been checked by itself: fine-tuning, what one option
// forces on another, what is not built. Adds warnings and notes; errors as parse_options().
void apply_option_rules(ParsedOptions& parsed);

}  // namespace tessera
