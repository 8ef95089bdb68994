#include "apps/data_command.h"
#include "base/error.h"

namespace tessera {

int inspect_data(const ParsedOptions&) { throw UserError("data inspect is not built yet"); }

}  // namespace tessera
