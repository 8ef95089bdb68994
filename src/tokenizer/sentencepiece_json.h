#pragma once
#include <string>

#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tokenizer_file.h"

namespace tessera {

// SentencePiece's BPE in a tokenizer.json, as Llama-2 and Mistral have it:
//
//   normalizer      Replace of " " by U+2581, Prepend of U+2581 before it; or none and
//   pre_tokenizer   Metaspace, whatever its prepend_scheme, split or not; else none
//   post_processor  as in tokenizer_json.h
//   decoder         of Replace, ByteFallback, Fuse, Strip, or Metaspace
//   model           unk_token, fuse_unk, byte_fallback
//   added_tokens    with all their flags
//
// Text that is not UTF-8, which Hugging Face's library does not take, keeps its bytes: each becomes
// the piece of the byte.

// Whether a file is to be read as one.
bool is_sentencepiece(const TokenizerFile& file);

// UserError naming the file and the component when it is another kind or not consistent. For
// `end_of_text` see tokenizer_json.h.
SentencePieceModel sentencepiece_model(const TokenizerFile& file, const std::string& end_of_text);

}  // namespace tessera
