#pragma once
#include <random>

#include "comm/tcp_socket.h"

namespace tessera {

// A port that was free a moment ago, and is not of those that the system gives to connections:
// other tests connect meanwhile.
inline int free_port() {
  static std::mt19937 engine{std::random_device{}()};
  std::uniform_int_distribution<int> below_connections{20'000, 32'000};
  while (true) {
    const int port = below_connections(engine);
    try {
      listen_on({"127.0.0.1", port});
      return port;
    } catch (const AddressInUseError&) {
    }
  }
}

}  // namespace tessera
