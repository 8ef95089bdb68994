#include "tokenizer/piece_patterns.h"

#include <nlohmann/json.hpp>

namespace tessera {

std::string_view regex_of(PiecePattern pattern) {
  switch (pattern) {
    case PiecePattern::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case PiecePattern::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case PiecePattern::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return "";
}

std::optional<PiecePattern> pattern_of_json(const std::string& json) {
  for (PiecePattern pattern : {PiecePattern::kGpt2, PiecePattern::kLlama3, PiecePattern::kQwen2}) {
    if (json == nlohmann::json{{"Regex", regex_of(pattern)}}.dump()) return pattern;
  }
  return std::nullopt;
}

}  // namespace tessera
