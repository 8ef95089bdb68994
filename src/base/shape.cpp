#include "base/shape.h"

#include "base/text.h"

namespace tessera {

std::string to_string(const Shape& shape) { return cat("[", join(shape, ", "), "]"); }

}  // namespace tessera
