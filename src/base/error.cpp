#include "base/error.h"

#include <cstring>

#include "base/text.h"

namespace tessera {

void internal_error(const char* file, int line, const char* condition, const std::string& detail) {
  const char* source = std::strstr(file, "src/");
  throw InternalError(cat("internal error at ", source ? source : file, ":", line, ": ", condition,
                          detail.empty() ? "" : ": ", detail,
                          " (this is a bug in tessera; please report it with the command line)"));
}

}  // namespace tessera
