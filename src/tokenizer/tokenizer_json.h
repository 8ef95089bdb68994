#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/bpe_model.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Hugging Face's tokenizer.json with model BPE. What is read by kind:
//
// byte-level (decoder ByteLevel), every byte in the vocabulary:
//   normalizer      none or NFC
//   pre_tokenizer   ByteLevel by its own pattern, GPT-2's; or Split by the pattern of GPT-2,
//                   Llama-3 or Qwen2, and ByteLevel without; add_prefix_space false
//   post_processor  none, ByteLevel, TemplateProcessing: ids that it puts before a text begin every
//                   document; behind it only the end of text may stand
//   model           ignore_merges; merges as "a b" or ["a", "b"]
//   added_tokens    with all their flags; one that is special is the end of text
//
// SentencePiece's BPE (pre_tokenizer Metaspace, normalizers Prepend and Replace, or byte_fallback):
// sentencepiece_json.h.
//
// Any other component or option is refused by its name. The end of text is not in the file:
// `end_of_text` names it, or tokenizer_config.json beside the file (its eos_token); without either
// it is the first of <|endoftext|>, <|end_of_text|> and </s>.

// A tokenizer of any kind. UserError naming the file when it cannot be read, is larger than 256
// MiB, is not such a file or is not consistent (two tokens of one id, merges of unknown tokens).
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& path);

// One of the byte-level kind, as data; errors call it `name`.
BpeModel parse_byte_level_json(std::string_view text, const std::string& name,
                               const std::string& end_of_text = "");

// A file from which parse_byte_level_json gives the same model. Ranks are positions there: of a
// model with rank_is_result come the same merges in the order in which they apply.
std::string format_tokenizer_json(const BpeModel& model);

// Atomic: the file is there whole or not at all.
void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model);

}  // namespace tessera
