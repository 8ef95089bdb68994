#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/bpe_model.h"

namespace tessera {

// The regular expression that a pattern of bpe_model.h stands for, as tokenizer files write it.
std::string_view regex_of(PiecePattern pattern);

// The pattern with that expression, given as the JSON of a Split: {"Regex":"..."}.
std::optional<PiecePattern> pattern_of_json(const std::string& json);

}  // namespace tessera
