#include "base/local_output.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

void require_local_output(std::string_view what, std::string_view path) {
  const size_t end = path.find("://");
  constexpr std::string_view kScheme =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
  if (end == std::string_view::npos || end == 0 ||
      path.substr(0, end).find_first_not_of(kScheme) != std::string_view::npos)
    return;
  throw UsageError(cat(what, " '", path,
                       "' is not of this machine, to which this is written: give a path here, and "
                       "copy what comes to be there"));
}

}  // namespace tessera
