#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Addresses, taken apart by libcurl's own parser: what is compared here is what is connected to.
namespace tessera {

struct Url {
  std::string text;    // as it is sent, without a fragment
  std::string scheme;  // http or https
  std::string host;    // lower case
  uint16_t port = 0;   // the scheme's where the text has none
  std::string path;    // begins with '/'
};

// UserError unless the text is an absolute http(s) address.
Url parse_url(std::string_view text);

// Where a Location or Link header of `base` leads; nullopt where it is no http(s) address.
std::optional<Url> resolve_reference(const Url& base, std::string_view reference);

// Scheme, host and port: secrets that are meant for one origin go to no other.
bool same_origin(const Url& a, const Url& b);

// For messages: without user, password, query and fragment, which may hold secrets. Works on any
// text, and loads nothing.
std::string public_url(std::string_view text);

// For records and listings of options: an http(s) address as public_url(), with a mark where that
// took something away; any other text as it is.
std::string masked_url(std::string_view text);
// Whether it has that mark, so that nothing can be fetched from it.
bool is_masked_url(std::string_view text);

// Every byte but letters, digits and -._~ as %XX, and '/' too unless `keep_slashes`.
std::string percent_encode(std::string_view text, bool keep_slashes);
// nullopt where % is not followed by two hexadecimal digits. `plus` turns + into a space.
std::optional<std::string> percent_decode(std::string_view text, bool plus);

}  // namespace tessera
