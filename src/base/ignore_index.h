#pragma once
#include <cstdint>

namespace tessera {

// Target of a token that the loss leaves out.
constexpr int32_t kIgnoreIndex = -100;

}  // namespace tessera
