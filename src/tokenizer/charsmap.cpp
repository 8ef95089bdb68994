#include "tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/code_points.h"

namespace tessera {
namespace {

// SentencePiece's own have 227 k rules of 1 to 4 characters.
constexpr size_t kMaxRules = size_t{1} << 20, kMaxSource = 64, kMaxNodes = size_t{1} << 22;

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

std::vector<Charsmap::Rule> Charsmap::rules(const std::string& name) const {
  std::vector<Rule> rules;
  std::string source;
  size_t nodes = 0;
  if (!units_.empty()) collect(offset(units_[0]), source, rules, nodes, name);
  return rules;
}

// A damaged charsmap may lead in circles: length and number are bounded.
void Charsmap::collect(size_t node, std::string& source, std::vector<Rule>& rules, size_t& nodes,
                       const std::string& name) const {
  auto refuse = [&](const char* why) {
    throw UserError(cat("tokenizer '", name, "': its precompiled_charsmap has ", why));
  };
  if (++nodes > kMaxNodes) refuse("too many rules");
  for (uint32_t byte = 1; byte < 256; ++byte) {
    uint32_t unit = units_[node ^ byte];
    if (label(unit) != byte) continue;
    source.push_back(static_cast<char>(byte));
    if (source.size() > kMaxSource) refuse("a rule that is too long");
    size_t next = node ^ byte ^ offset(unit);
    if (ends_key(unit)) {
      if (rules.size() == kMaxRules) refuse("too many rules");
      rules.push_back({source, strings_.c_str() + (units_[next] & ~kLeaf)});
      if (!is_utf8(source) || !is_utf8(rules.back().replacement)) {
        refuse("a rule that is not UTF-8");
      }
    }
    collect(next, source, rules, nodes, name);
    source.pop_back();
  }
}

}  // namespace tessera
