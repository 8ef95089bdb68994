#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spelled_bpe.h"

namespace tessera {

// A component of a tokenizer.json, such as the pre-tokenizer
// {"type": "ByteLevel", "use_regex": false}.
struct TokenizerStep {
  std::string type;                            // "without a type" where there is none
  std::map<std::string, std::string> options;  // the others, as compact JSON: use_regex is `false`

  // "null" where the option is not there.
  const std::string& option(const std::string& key) const;
};

// What a tokenizer.json says, of whatever kind of BPE; it is made sense of by the readers of the
// kinds (tokenizer_json.cpp).
struct TokenizerFile {
  SpelledBpe bpe;       // vocabulary, merges, added tokens
  TokenizerStep model;  // its other options: byte_fallback, ignore_merges, unk_token ...
  // In order; a Sequence is its parts. Empty where there is none.
  std::vector<TokenizerStep> normalizers, pre_tokenizers, decoders;
  std::vector<int32_t> before, after;  // ids that the post-processor puts around a text

  // UserError that names the component unless `step` has no option but these (and others that are
  // null, false, "" or 0).
  void expect_options(const char* component, const TokenizerStep& step,
                      std::initializer_list<std::string_view> known) const;
};

// Bounds size, number of values and depth before it holds them. UserError naming `name`: not JSON,
// not such a file, a model other than BPE, a post-processor other than ByteLevel and
// TemplateProcessing (ids before and behind one sequence).
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& name);

// The ids before every document, from the post-processor: special added tokens. Behind a text it
// may only put the end of text. UserError naming the file otherwise.
std::vector<int32_t> document_prefix_of(const TokenizerFile& file,
                                        const std::vector<AddedToken>& added, int32_t end_of_text);

// Tokens by id in a JSON object, as in vocab.json: the same bounds. UserError naming `name`.
std::unordered_map<std::string, int32_t> parse_vocabulary(std::string_view text,
                                                          const std::string& name);

// What is needed of a tokenizer_config.json; "" where it does not say.
struct TokenizerConfig {
  std::string tokenizer_class;
  std::string end_of_text;  // `eos_token`: a name, or an added token with its name
};

// The tokenizer_config.json in `directory`; all "" where there is none. UserError naming the file
// when it is not such a file.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory);

// UserError, of the tokenizer `name`, where added_tokens.json or tokenizer_config.json in its
// directory add tokens which it does not have with these ids: texts would get other ids than
// theirs. The one that fills rows up may be missing, since no text becomes it. `id_of`: that of a
// token, below 0 where there is none.
void refuse_added_tokens(const std::filesystem::path& directory, const std::string& name,
                         const std::function<int32_t(const std::string& token)>& id_of);

}  // namespace tessera
