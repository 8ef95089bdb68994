#pragma once
#include "backends/ref/interpreter.h"

namespace tessera::ref {

// Holds the marks of every value against its bits: InternalError, naming the node and two ranks,
// for one whose type says replicated over an axis along which it differs.
Observer true_marks();

}  // namespace tessera::ref
