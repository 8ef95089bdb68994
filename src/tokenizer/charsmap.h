#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// SentencePiece's precompiled_charsmap: rules that replace the longest string they know at a
// position (NFKC and the like). Little-endian
//
//   u32 n | n bytes: units of 4 bytes, a double-array trie | strings, each ended by a zero byte
//
// in the form of darts-clone: bits 0-7 of a unit are the byte that leads to it, bit 8 says that a
// key ends there, bits 10-30, shifted left by 8 more if bit 9 is set, are the offset: the unit that
// byte c leads to from unit i is i ^ offset ^ c; the one for c = 0 holds, with bit 31 set, in bits
// 0-30 where the key's replacement begins among the strings.
class Charsmap {
 public:
  // Why `blob` is no charsmap, as the end of a sentence; nothing when it is one. Empty is one.
  static std::optional<std::string> fault(std::string_view blob);

  // No rules, or those of a blob without fault (InternalError otherwise).
  explicit Charsmap(std::string_view blob);

  bool empty() const { return units_.empty(); }

  struct Match {
    size_t size = 0;  // of the text that is replaced; 0: no rule
    std::string_view replacement;
  };
  // The longest rule for the beginning of `text`. The view holds as long as this object.
  Match longest(std::string_view text) const;

  struct Rule {
    std::string source, replacement;
  };
  // All rules, by their sources. UserError with `name` for the message where they are more, or
  // longer, than such rules are, or not UTF-8.
  std::vector<Rule> rules(const std::string& name) const;

  // Whether no rule changes this ASCII character where ASCII, or nothing, follows it.
  bool keeps(unsigned char ascii) const { return keeps_[ascii]; }

 private:
  void collect(size_t node, std::string& source, std::vector<Rule>& rules, size_t& nodes,
               const std::string& name) const;

  std::vector<uint32_t> units_;
  std::string strings_;
  std::array<bool, 128> keeps_{};
};

}  // namespace tessera
