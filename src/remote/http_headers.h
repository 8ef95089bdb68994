#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Header fields of HTTP answers. Whatever a server sends is parsed strictly and without an error:
// what has not the form of its specification is as if it were not there.
namespace tessera {

// Name in lower case, and value without white space around it.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The first value of that name (lower case), or null.
const std::string* find_header(const HttpHeaders& headers, std::string_view name);

// Takes a line `Name: value` in; false if it is none.
bool add_header_line(HttpHeaders& headers, std::string_view line);

struct ContentRange {
  // Of an answer 206: the first and last byte, both included. Of 416 (`bytes */SIZE`) neither.
  std::optional<uint64_t> first, last;
  std::optional<uint64_t> total;  // nullopt: `*`
};
// RFC 9110, section 14.4: `bytes 0-99/1234`.
std::optional<ContentRange> parse_content_range(std::string_view value);

// RFC 9110, section 5.6.7, in its preferred form: `Sun, 06 Nov 1994 08:49:37 GMT`, as seconds since
// 1970.
std::optional<int64_t> parse_http_date(std::string_view value);

// Seconds to wait: `120`, or a date, counted from `now` (seconds since 1970); not negative.
std::optional<int64_t> parse_retry_after(std::string_view value, int64_t now);

// Seconds until something is left, of `RateLimit: "resolvers";r=0;t=55`: the longest of the
// policies of which nothing is left.
std::optional<int64_t> parse_rate_limit(std::string_view value);

// The target of `Link: <URL>; rel="next"` (RFC 8288).
std::optional<std::string> parse_next_link(std::string_view value);

// An entity tag without its quotes, `W/` kept before a weak one; "" where it is none.
std::string parse_etag(std::string_view value);

}  // namespace tessera
