#pragma once
#include <string>
#include <string_view>

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

// A tokenizer.json from which Hugging Face's tokenizers make the ids of `model`, one of a .model
// (sentencepiece_model.h). Theirs add scores of a unigram model in f64, SentencePiece in f32: where
// nothing but this rounding decides between two ways, ids may differ.
//
// UserError with `name` for the message where they cannot: unused pieces, pieces of one score
// (BPE), rules that normalizer_steps.h cannot say.
std::string format_tokenizer_json(const SentencePieceModel& model, const std::string& name);

// Whether a file begins as format_tokenizer_json() writes it: cheap, and no proof.
bool is_written_here(std::string_view tokenizer_json);

}  // namespace tessera
