#pragma once
#include "options/option_parser.h"

namespace tessera {

// `tessera data prepare ...` and `tessera data inspect PATH ...`; `parsed.words` begins with the
// word behind `data`. Return the exit status.
int prepare_data(ParsedOptions& parsed);
int inspect_data(const ParsedOptions& parsed);

}  // namespace tessera
