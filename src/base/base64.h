#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// RFC 4648, padded by '='.
std::string to_base64(std::string_view bytes);

// Nothing unless `text` is base64 in whole groups of four.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tessera
