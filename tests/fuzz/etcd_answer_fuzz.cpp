#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/etcd_answer.h"

// Any bytes as an answer of etcd's JSON gateway: refused, or with no more in it than was sent.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto answer = tessera::parse_etcd_answer({reinterpret_cast<const char*>(data), size});
  if (!answer) return 0;
  size_t bytes = answer->token.size() + answer->error.size();
  for (const tessera::EtcdKeyValue& one : answer->values)
    bytes += one.key.size() + one.value.size();
  if (bytes > size) std::abort();
  return 0;
}
