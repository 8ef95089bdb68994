#pragma once

namespace tessera {

struct PipeEnds {
  int read, write;
};

// A new pipe, both ends closed by exec. DeviceError, with advice where too many files are open.
PipeEnds open_pipe();

}  // namespace tessera
