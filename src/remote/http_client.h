#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remote/http_headers.h"
#include "remote/http_transport.h"

// Requests with what makes them last: redirects, repetitions, deadlines.
namespace tessera {

struct HttpSettings {
  HttpTimeouts timeouts;
  // After a failure that may pass (no connection, an answer cut short, 408, 429, 5xx) a request is
  // repeated: after first_wait, twice as long each time up to longest_wait, a random half of it
  // less; or when the server says. It is given up after so many attempts, or where the next would
  // begin past the deadline, which is counted from the last piece of what was asked for.
  int attempts = 8;
  double first_wait = 0.5, longest_wait = 30, deadline = 300;  // seconds
};

// Takes a piece of a body (of a status 2xx) that begins `offset` bytes into it. A repeated request
// begins again at 0.
using BodySink = std::function<void(uint64_t offset, std::string_view piece)>;

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;
  std::string body;  // empty if a sink took it; of a status that is not 2xx its first 64 KiB
  uint64_t body_bytes = 0;
  std::string url;                     // behind all redirects
  bool trusted = true;                 // none of them led to another origin
  std::vector<HttpHeaders> redirects;  // the headers of each
  int attempts = 0;
};

struct HttpRequest {
  std::string url;
  bool head = false;
  std::string method;     // as of HttpExchange; with one no redirect is followed
  std::string_view body;  // sent again with every repetition
  std::optional<std::pair<uint64_t, uint64_t>> range;  // first byte, number of bytes (not 0)
  HttpHeaders headers;
  // The value of Authorization, for the origin (scheme, host, port) of `url` alone: behind a
  // redirect to another one it is not sent, and not any more when one leads back.
  std::string authorization;
  const AwsCredentials* sign_as = nullptr;  // redirects are not followed then
  uint64_t max_body = uint64_t{32} << 20;   // a longer one is an error
  BodySink sink;
  // What is wrong with an answer 2xx, so that it is asked for again; empty if nothing is.
  std::function<std::string(const HttpResponse&)> flaw;
  const std::atomic<bool>* cancel = nullptr;  // ends it with Interrupted; may be null
  std::string advice;                         // what to do where nobody can be reached
};

// Sends it, follows up to 10 redirects (none from https to http) and repeats it as `settings` say.
// An answer of status 200 to a request for a range has no body here: the rest is not read. With
// Content-Range it is one of status 206, whose number the server has wrong.
//
// Returns answers 2xx and 4xx, and 3xx that lead nowhere on purpose, without Location. UserError,
// with the address (without what may be secret), the last status or failure, the number of attempts
// and what to do: no answer; 5xx or 429 to the end; an answer that is cut short or flawed to the
// end; too long an answer; a redirect that leads nowhere. Interrupted when this process is asked to
// end.
HttpResponse send_request(const HttpRequest& request, const HttpSettings& settings);

// The UserError for an answer that is none of those that the caller can use. `advice`: what to do.
[[noreturn]] void refuse_response(const HttpRequest& request, const HttpResponse& response,
                                  std::string_view advice);

// What a server gave as a reason, fit for a message: X-Error-Message, or the message in an XML
// body.
std::string server_reason(const HttpResponse& response);

}  // namespace tessera
