#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "remote/http_headers.h"

// One request and its answer over libcurl. No redirect is followed and nothing is repeated here.
// Proxies are those of libcurl's variables (https_proxy, no_proxy and so on).
namespace tessera {

// For Amazon's signature, version 4.
struct AwsCredentials {
  std::string access_key, secret_key, session_token, region;
};

struct HttpTimeouts {
  int connect_milliseconds = 20'000;
  // What gives less than so many bytes a second for so long has ended.
  int low_speed_bytes = 4096;
  int low_speed_seconds = 30;
  int total_milliseconds = 0;  // of the whole exchange; 0: no end
};

// PEM files; empty: the authorities of the system, no certificate of one's own.
struct TlsFiles {
  std::string authorities, certificate, key;
};

struct HttpExchange {
  std::string url;
  bool head = false;
  std::string method;     // "PUT", "POST" or "DELETE"; empty: GET, or HEAD
  std::string_view body;  // of PUT and POST
  std::string range;      // "0-99", or empty
  HttpHeaders headers;
  const AwsCredentials* sign_as = nullptr;
  const TlsFiles* tls = nullptr;
  bool direct = false;  // by no proxy
  HttpTimeouts timeouts;
  const std::atomic<bool>* cancel = nullptr;  // ends it, may be null
  // Takes a piece of the body; false ends the exchange.
  std::function<bool(int status, const HttpHeaders& headers, std::string_view piece)> on_body;
};

struct HttpOutcome {
  int status = 0;  // 0: no answer
  HttpHeaders headers;
  bool stopped = false;      // by on_body
  std::string failure;       // of the connection; empty if the answer is complete
  bool passing = false;      // a failure that may not be there the next time
  bool unreachable = false;  // the failure is that of reaching anybody at all
};

// Interrupted when this process is asked to end, or `cancel` is set.
HttpOutcome exchange_http(const HttpExchange& exchange);

}  // namespace tessera
