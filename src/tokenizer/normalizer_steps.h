#pragma once
#include <string>
#include <vector>

#include "tokenizer/sentencepiece_model.h"

namespace tessera {

// A normalizer of Hugging Face's `tokenizers`.
struct NormalizerStep {
  enum class Kind { kReplace, kReplaceRegex, kPrecompiled, kNfc, kPrepend };
  Kind kind;
  std::string pattern;  // of the two that replace: a text, or Oniguruma's regular expression
  std::string content;  // what is put there; the charsmap of kPrecompiled

  bool operator==(const NormalizerStep&) const = default;
};

// Steps that give, one after another, what SentencePieceNormalizer gives, with spaces as U+2581
// where the model escapes them. Hugging Face's Precompiled alone does not: it takes rules by
// grapheme, the shortest one first. So units, which are the longest rules and the characters that
// no rule takes, are set apart by noncharacters while characters are replaced one by one (kNfc then
// composes within units); rules that do not come out that way are replaced by themselves.
//
// Noncharacters in the text are lost where the model falls back to bytes and has a charsmap.
// UserError with `name` for the message where the rules cannot be said so.
std::vector<NormalizerStep> normalizer_steps(const SentencePieceModel& model,
                                             const std::string& name);

}  // namespace tessera
