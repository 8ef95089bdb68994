#include "ir/slot.h"

#include "base/text.h"

namespace tessera {

std::string slot_name(std::string_view kind, std::string_view unit) {
  return unit.empty() ? std::string(kind) : cat(kind, ".", unit);
}

std::string Slot::name() const { return slot_name(kind, unit); }

std::string Slot::tensor_name(std::string_view parameter) const {
  return role == SlotRole::kWeight ? std::string(parameter)
                                   : cat("optim.state.", parameter, ".", kind);
}

}  // namespace tessera
