#pragma once
#include "base/error.h"

namespace tessera {

// Thrown inside this folder, where neither file nor column are known. They leave it as UserErrors
// that name both.
struct Damaged : Error {  // the bytes break the rules of their format
  using Error::Error;
};
struct Unsupported : Error {  // they may be fine; this program does not read them
  using Error::Error;
};

}  // namespace tessera
