#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/code_points.h"
#include "tokenizer/sentencepiece_model.h"

namespace tessera {

// Cuts normalised text (sentencepiece_normalizer.h) into pieces.
class Segmenter {
 public:
  virtual ~Segmenter() = default;
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
};

// The pieces that stand for characters of which the model knows nothing.
class UnknownCharacters {
 public:
  explicit UnknownCharacters(const SentencePieceModel& model);

  // Of one character of normalised text, or of a byte that is none.
  void append(std::string_view character, std::vector<int32_t>& ids) const;

 private:
  bool byte_fallback_, escape_spaces_;
  int32_t unknown_;
  std::array<int32_t, 256> byte_ids_{};
};

// A piece as it stands in normalised text; nothing where no such text can hold it.
std::optional<std::string> normalized_piece(const SentencePieceModel& model, size_t id);

}  // namespace tessera
