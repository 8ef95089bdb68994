#include "apps/text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

std::string name_of_text_input(const std::string& path) {
  return path == "-" ? "standard input" : cat("'", path, "'");
}

std::string read_text_input(const std::string& path, size_t limit) {
  const bool standard = path == "-";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
      standard ? nullptr : std::fopen(path.c_str(), "re"), std::fclose);
  std::FILE* input = standard ? stdin : opened.get();
  std::string text;
  char buffer[1 << 16];
  while (size_t n = input ? std::fread(buffer, 1, sizeof buffer, input) : 0) {
    text.append(buffer, n);
    if (text.size() > limit) {
      throw UserError(cat(name_of_text_input(path), " is longer than ",
                          format_bytes(static_cast<int64_t>(limit)), ": give it in parts"));
    }
  }
  if (!input || std::ferror(input))
    throw UserError(cat("cannot read ", name_of_text_input(path), ": ", std::strerror(errno)));
  return text;
}

}  // namespace tessera
