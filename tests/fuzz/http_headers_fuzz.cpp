#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "remote/http_headers.h"
#include "remote/url.h"

// Any bytes as every header field that is parsed, and as an address.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  HttpHeaders headers;
  if (add_header_line(headers, text) && headers.size() != 1) std::abort();
  if (auto range = parse_content_range(text)) {
    if (range->first.has_value() != range->last.has_value()) std::abort();
    if (range->first && *range->first > *range->last) std::abort();
    if (range->first && range->total && *range->last >= *range->total) std::abort();
    if (!range->first && !range->total) std::abort();
  }
  if (auto wait = parse_retry_after(text, 1'700'000'000); wait && *wait < 0) std::abort();
  if (auto wait = parse_rate_limit(text); wait && *wait < 0) std::abort();
  if (parse_etag(text).find_first_of("\r\n\"") != std::string::npos) std::abort();
  if (auto decoded = percent_decode(text, false)) {
    if (percent_decode(percent_encode(*decoded, false), false) != decoded) std::abort();
  }
  static const Url base = parse_url("https://host:8443/a/b?c");
  for (const auto& reference : {parse_next_link(text), std::optional(std::string(text))}) {
    auto url = reference ? resolve_reference(base, *reference) : std::nullopt;
    if (!url) continue;
    if (url->scheme != "http" && url->scheme != "https") std::abort();
    if (url->host.empty() || !same_origin(*url, *url)) std::abort();
    // What was taken apart is the same when it is taken apart again.
    if (!same_origin(parse_url(url->text), *url)) std::abort();
  }
  return 0;
}
