#pragma once
#include <cstdint>
#include <string_view>

namespace tessera::xla {

// Of a program as XLA left it after its passes.
struct HloGathers {
  int64_t ops = 0;      // all_gathers
  int64_t tensors = 0;  // that those take: XLA combines small ones
};

// Of a serialized HloModuleProto, or HloModuleProtoWithConfig (`with_config`). UserError where it
// is cut off or malformed.
HloGathers count_gathers(std::string_view module, bool with_config);

}  // namespace tessera::xla
