#pragma once
#include <string>
#include <string_view>

namespace tessera {

// A text as JSON has it, quotes included; what is no UTF-8 in it becomes U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace tessera
