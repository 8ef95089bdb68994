#pragma once
#include <random>
#include <set>

#include "comm/tcp_socket.h"

namespace tessera {

// A port that was free a moment ago, and is not of those that the system gives to connections:
// other tests connect meanwhile. A process gets each port once: who is to listen
// there need not do so yet.
inline int free_port() {
  static std::mt19937 engine{std::random_device{}()};
  static std::set<int> given;
  std::uniform_int_distribution<int> below_connections{20'000, 32'000};
  while (true) {
    const int port = below_connections(engine);
    if (given.contains(port)) continue;
    try {
      listen_on({"127.0.0.1", port});
      given.insert(port);
      return port;
    } catch (const AddressInUseError&) {
    }
  }
}

}  // namespace tessera
