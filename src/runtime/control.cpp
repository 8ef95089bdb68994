#include "runtime/control.h"

#include <algorithm>

namespace tessera {

bool Control::any(std::string_view tag, bool here) {
  return std::ranges::count(meet(tag, "any", here ? "1" : "0"), "1") > 0;
}

}  // namespace tessera
