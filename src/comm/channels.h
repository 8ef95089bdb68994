#pragma once
#include <memory>

#include "runtime/communicator.h"
#include "runtime/control.h"

namespace tessera {

// What a rank has of the others. It leaves the job with its communicator, which goes first.
struct Channels {
  std::unique_ptr<Control> control;
  std::unique_ptr<Communicator> communicator;
};

}  // namespace tessera
