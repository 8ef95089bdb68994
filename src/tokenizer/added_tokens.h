#pragma once
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/marked_text.h"
#include "tokenizer/pair_map.h"

namespace tessera {

// A token that is looked for in the text before anything else happens to it (Hugging Face's
// `added_tokens`).
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool special = false;      // a name like <|endoftext|>, which ordinary text never becomes
  bool normalized = false;   // looked for in normalized text, else in the text as it comes
  bool single_word = false;  // only where no word character (\w) stands beside it
  bool strip_left = false;   // swallows the white space before it
  bool strip_right = false;  // swallows the white space behind it
  bool ordinary = false;     // text may become it by merging too: the vocabulary has it as well

  bool operator==(const AddedToken&) const = default;
};

// Of `count` ids those before the special tokens at the end that no text needs. `added` ascend by
// id; `needed` ones stand in texts all the same.
int32_t count_without_special_tail(int32_t count, std::span<const AddedToken> added,
                                   std::initializer_list<int32_t> needed,
                                   std::span<const int32_t> document_prefix);

// Where the names of special tokens are those tokens: nowhere, anywhere, or inside of ranges.
struct SpecialNames {
  bool anywhere = false;
  std::span<const TextRange> ranges = {};  // ascending, apart from each other
  size_t offset = 0;                       // of the text that is looked at in that of the ranges

  bool nowhere() const { return !anywhere && ranges.empty(); }
  // Of the bytes [begin, end) of the text that is looked at.
  bool hold(size_t begin, size_t end) const;
};

// Finds added tokens: leftmost first, the longest of those that begin at one place. Without tokens
// it costs nothing.
class AddedTokens {
 public:
  // What readers of files accept, of one text and of all: the search takes time in proportion to
  // the longest and memory in proportion to the sum.
  static constexpr size_t kMaxTokenBytes = 1024, kMaxBytes = size_t{4} << 20;

  AddedTokens() = default;
  // Texts must not be empty, and all be `normalized` or none; among equal texts the first counts.
  // `spaces_are_symbols`: a space stands for U+2581, which is no white space to strip.
  explicit AddedTokens(std::vector<AddedToken> tokens, bool spaces_are_symbols = false);

  // Calls on_token(const AddedToken&, TextRange name) for each token of `text`, where its name
  // stands, and on_text(std::string_view) for each stretch between them, in order. Where `special`
  // does not hold them, the names of special tokens are text, and tokens that begin inside of them
  // are not found.
  template <class Text, class Token>
  void split(std::string_view text, const SpecialNames& special, const Text& on_text,
             const Token& on_token) const {
    size_t done = 0, from = 0;
    Match match{};
    while (next(text, special, done, from, match)) {
      if (match.begin > done) on_text(text.substr(done, match.begin - done));
      on_token(tokens_[match.token], match.name);
      done = match.end;
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  struct Match {
    size_t begin, end, token;
    TextRange name;  // [begin, end) without the white space that the token swallows
  };

  // The next token of `text`: searches from `from` on, which it moves behind what it found; `done`
  // is the end of the token before.
  bool next(std::string_view text, const SpecialNames& special, size_t done, size_t& from,
            Match& match) const;
  // The longest token that begins at `position`, if any.
  bool longest_at(std::string_view text, size_t position, Match& match) const;
  // Whether a token swallows the character that begins at `position`; moves behind it.
  bool strips(std::string_view text, size_t& position) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> token_of_;  // by node of the trie: index of the token that ends there or -1
  PairMap<int32_t> children_;      // (node, byte) to node
  std::bitset<65536> first_two_;   // pairs of bytes with which a token may begin
  bool all_special_ = true, spaces_are_symbols_ = false;
};

}  // namespace tessera
