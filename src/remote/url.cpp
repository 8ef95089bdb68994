#include "remote/url.h"

#include <curl/curl.h>

#include <memory>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "remote/curl_library.h"

namespace tessera {
namespace {

constexpr size_t kMaxUrlBytes = 16384;
constexpr std::string_view kMask = "?...";

struct UrlFunctions {
  decltype(&::curl_url) make = reinterpret_cast<decltype(&::curl_url)>(curl_function("curl_url"));
  decltype(&::curl_url_cleanup) cleanup =
      reinterpret_cast<decltype(&::curl_url_cleanup)>(curl_function("curl_url_cleanup"));
  decltype(&::curl_url_set) set =
      reinterpret_cast<decltype(&::curl_url_set)>(curl_function("curl_url_set"));
  decltype(&::curl_url_get) get =
      reinterpret_cast<decltype(&::curl_url_get)>(curl_function("curl_url_get"));
  decltype(&::curl_free) free =
      reinterpret_cast<decltype(&::curl_free)>(curl_function("curl_free"));
};

const UrlFunctions& functions() {
  static const UrlFunctions table;
  return table;
}

class ParsedUrl {
 public:
  ParsedUrl() : handle_(functions().make(), functions().cleanup) {
    TESSERA_CHECK(handle_ != nullptr, "curl_url");
  }
  bool set(CURLUPart part, const char* text, unsigned flags) {
    return functions().set(handle_.get(), part, text, flags) == CURLUE_OK;
  }
  std::string get(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (functions().get(handle_.get(), part, &text, flags) != CURLUE_OK) return "";
    std::string copy(text);
    functions().free(text);
    return copy;
  }
  std::optional<Url> take() {
    set(CURLUPART_FRAGMENT, nullptr, 0);
    Url url{get(CURLUPART_URL), lower(get(CURLUPART_SCHEME)), lower(get(CURLUPART_HOST)), 0,
            get(CURLUPART_PATH)};
    const auto port = parse_number<uint16_t>(get(CURLUPART_PORT, CURLU_DEFAULT_PORT));
    if (!port || url.host.empty()) return {};
    if (url.scheme != "http" && url.scheme != "https") return {};
    url.port = *port;
    return url;
  }

 private:
  std::unique_ptr<CURLU, decltype(&::curl_url_cleanup)> handle_;
};

bool is_one_line(std::string_view text) {
  return text.size() <= kMaxUrlBytes && text.find('\0') == std::string_view::npos;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Url parse_url(std::string_view text) {
  ParsedUrl parsed;
  std::optional<Url> url;
  // Dots stay: a key of S3 may hold them.
  if (is_one_line(text) && parsed.set(CURLUPART_URL, std::string(text).c_str(), CURLU_PATH_AS_IS))
    url = parsed.take();
  if (!url) {
    throw UserError(cat("'", public_url(text.substr(0, 200)),
                        "' is not a valid address; give http://HOST/PATH or https://HOST/PATH, "
                        "spaces and the like as %20"));
  }
  return *url;
}

std::optional<Url> resolve_reference(const Url& base, std::string_view reference) {
  ParsedUrl parsed;
  if (!is_one_line(reference) || !parsed.set(CURLUPART_URL, base.text.c_str(), CURLU_PATH_AS_IS))
    return {};
  if (!parsed.set(CURLUPART_URL, std::string(reference).c_str(), CURLU_URLENCODE)) return {};
  return parsed.take();
}

bool same_origin(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}

std::string public_url(std::string_view text) {
  std::string shown(text.substr(0, text.find_first_of("?#")));
  size_t scheme = shown.find("://");
  if (scheme != std::string::npos) {
    size_t host = scheme + 3, path = std::min(shown.find_first_of("/\\", host), shown.size());
    size_t at = shown.rfind('@', path);
    // A hub's or a bucket's name may have an @ behind its first part.
    if (at != std::string::npos && at >= host && at < path && shown.starts_with("http"))
      shown.erase(host, at + 1 - host);
  }
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown;
}

std::string masked_url(std::string_view text) {
  if (!text.starts_with("http://") && !text.starts_with("https://")) return std::string(text);
  std::string shown = public_url(text);
  shown.resize(std::min(shown.find('?'), shown.size()));  // what was a control character
  if (shown != text) shown += kMask;
  return shown;
}

bool is_masked_url(std::string_view text) {
  return (text.starts_with("http://") || text.starts_with("https://")) &&
         text.find(kMask) != text.npos;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z', digit = byte >= '0' && byte <= '9';
    if (letter || digit || c == '-' || c == '.' || c == '_' || c == '~' ||
        (c == '/' && keep_slashes)) {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back("0123456789ABCDEF"[byte >> 4]);
      encoded.push_back("0123456789ABCDEF"[byte & 15]);
    }
  }
  return encoded;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size() || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0)
        return {};
      decoded.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(plus && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return decoded;
}

}  // namespace tessera
