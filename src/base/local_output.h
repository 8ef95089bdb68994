#pragma once
#include <string_view>

namespace tessera {

// UsageError where a path that is to be written names another place than this machine,
// SCHEME://...: taken for a path it would become a directory `SCHEME:` here. `what` says whose
// value it is.
void require_local_output(std::string_view what, std::string_view path);

}  // namespace tessera
