#pragma once
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"

namespace tessera {

// A BPE vocabulary as files spell it. In files of byte-level BPE the tokens are written in the byte
// alphabet (byte_alphabet.h), added tokens as plain text.
struct SpelledBpe {
  std::string name;                                         // of the file, for messages
  std::unordered_map<std::string, int32_t> ids;             // the model's own vocabulary, by token
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<AddedToken> added;

  // UserError "cannot read tokenizer 'NAME': WHAT"; what it quotes from the file is cut short.
  [[noreturn]] void fail(const std::string& what) const;
};

// The added tokens, checked: not empty, none twice, ids as in the vocabulary, bounds of
// AddedTokens. Ascending by id. UserError naming the file.
std::vector<AddedToken> added_tokens_of(const SpelledBpe& spelled);

// The id of the special one of them whose name is `end_of_text`; where that is empty, of the first
// there is of <|endoftext|>, <|end_of_text|> and </s>. UserError naming the file.
int32_t end_of_text_of(const SpelledBpe& spelled, const std::vector<AddedToken>& added,
                       const std::string& end_of_text);

// Tokens, merges, added tokens and end of text of a byte-level model, checked: one token an id,
// every byte a token, merges of known tokens. UserError naming the file.
BpeModel byte_level_model(const SpelledBpe& spelled, const std::string& end_of_text);

}  // namespace tessera
