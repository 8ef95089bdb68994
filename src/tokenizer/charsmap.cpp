#include "tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

constexpr uint32_t kLeaf = uint32_t{1} << 31;

bool ends_key(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (kLeaf | 0xFF); }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

struct Parts {
  std::vector<uint32_t> units;
  std::string_view strings;
};

std::optional<Parts> parts_of(std::string_view blob) {
  uint32_t bytes = 0;
  if (blob.size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, blob.data(), sizeof bytes);
  blob.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > blob.size()) return std::nullopt;
  Parts parts;
  parts.units.resize(bytes / sizeof(uint32_t));
  std::memcpy(parts.units.data(), blob.data(), bytes);
  parts.strings = blob.substr(bytes);
  return parts;
}

}  // namespace

std::optional<std::string> Charsmap::fault(std::string_view blob) {
  if (blob.empty()) return std::nullopt;
  auto parts = parts_of(blob);
  if (!parts) return "does not have the size it names";
  const std::vector<uint32_t>& units = parts->units;
  if (parts->strings.empty() || parts->strings.back() != '\0') return "ends within a string";
  if ((units[0] & kLeaf) != 0 || ends_key(units[0])) return "has no valid first unit";
  for (size_t i = 0; i < units.size(); ++i) {
    if ((units[i] & kLeaf) != 0) {
      if ((units[i] & ~kLeaf) >= parts->strings.size()) return "points behind its strings";
      continue;
    }
    // Wherever a byte leads from here lies in the same 256 units.
    size_t next = i ^ offset(units[i]);
    if ((next | 0xFF) >= units.size()) return "points behind its units";
    if (ends_key(units[i]) && (units[next] & kLeaf) == 0) return "has a key without a value";
  }
  return std::nullopt;
}

Charsmap::Charsmap(std::string_view blob) {
  TESSERA_CHECK(!fault(blob), "a charsmap was not checked");
  if (!blob.empty()) {
    Parts parts = *parts_of(blob);
    units_ = std::move(parts.units);
    strings_ = parts.strings;
  }
  for (unsigned char first = 0; first < 128; ++first) {
    std::string pair(1, static_cast<char>(first));
    keeps_[first] = longest(pair).size == 0;
    pair.push_back('\0');
    for (char second = 0; keeps_[first]; ++second) {
      pair[1] = second;
      keeps_[first] = longest(pair).size == 0;
      if (second == 127) break;
    }
  }
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    uint32_t unit = units_[node];
    if (label(unit) != byte) break;
    node ^= offset(unit);
    if (!ends_key(unit)) continue;
    match.size = i + 1;
    match.replacement = strings_.c_str() + (units_[node] & ~kLeaf);
  }
  return match;
}

}  // namespace tessera
