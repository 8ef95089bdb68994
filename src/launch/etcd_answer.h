#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct EtcdKeyValue {
  std::string key, value;
  int64_t mod_revision = 0;  // of the store when the key was changed last
};

// What the JSON gateway of etcd (3.4 and later, /v3/) says to any of the calls that are used here;
// what a call does not say is 0 or empty, as in its answers themselves.
struct EtcdAnswer {
  int64_t revision = 0;              // of the store
  std::vector<EtcdKeyValue> values;  // of a range
  bool succeeded = false;            // of a transaction: its comparisons held
  int64_t lease = 0, ttl = 0;        // seconds
  std::string token;                 // of an authentication
  std::string error;
  int code = 0;           // of gRPC: 3 bad argument, 5 not found, 7 not allowed, 16 who are you
  bool repeated = false;  // an earlier attempt was not answered, and may have come through
};

// No value for text that is no such answer.
std::optional<EtcdAnswer> parse_etcd_answer(std::string_view text);

}  // namespace tessera
