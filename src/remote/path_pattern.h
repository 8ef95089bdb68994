#pragma once
#include <string_view>

namespace tessera {

// `*` and `?` stand for characters of one name, `[0-9]` and `[!a]` for one of them, `**` for any
// characters of a path, and `**/` also for nothing.
bool matches_path_pattern(std::string_view path, std::string_view pattern);

}  // namespace tessera
