#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/store_protocol.h"

// Any bytes as what a client of the store sends. The first byte says whether they come after a good
// handshake (bit 0) and how they are cut into pieces. A stranger gets no more than a hello and a
// refusal, a member no more than one answer at a time; nothing is kept that did not arrive.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  bool member = data[0] & 1;
  size_t piece = 1 + data[0] / 2;
  StoreSession::TimePoint now{};
  MemoryStore store;
  store.set("there", "value");
  StoreSession session(store, "token", std::string(32, 's'));
  if (member) {
    std::string hello = store_hello(std::string(32, 'c'));
    session.receive(hello, now);
    session.receive(store_proof("token", "client", hello, session.output()), now);
    session.output().clear();
    if (!session.is_accepted()) std::abort();
  }
  size_t received = 0;
  while (!bytes.empty() && !session.is_closed()) {
    session.receive(bytes.substr(0, piece), now);
    if (session.waits_until()) {
      now = *session.waits_until();
      session.resume(now);
      if (session.waits_until()) std::abort();
    }
    received += session.output().size();
    if (!member && session.is_accepted()) std::abort();
    if (!member && received > kStoreHelloSize + 1) std::abort();
    if (session.output().size() > size + 1000) std::abort();
    session.output().clear();
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  session.end();
  auto value = store.find("there");  // a member may replace it
  if (!value || (!member && *value != "value")) std::abort();
  return 0;
}
