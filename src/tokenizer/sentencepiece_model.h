#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"

namespace tessera {

// A tokenizer of SentencePiece's kind, whichever file it came from. Pieces are UTF-8 in which
// U+2581 stands for a space.
struct SentencePieceModel {
  enum class Algorithm : uint8_t { kUnigram = 1, kBpe = 2 };
  enum class Kind : uint8_t {
    kNormal = 1,
    kUnknown = 2,      // stands for text that no piece has
    kControl = 3,      // text never becomes it
    kUserDefined = 4,  // wherever text holds it, it is this piece
    kUnused = 5,       // BPE merges through it, but it is no result
    kByte = 6,         // "<0x0A>": a byte of a character that no piece has
  };
  struct Piece {
    std::string text;
    float score = 0;  // log-probability (unigram) or priority (BPE): the highest first
    Kind kind = Kind::kNormal;
    bool operator==(const Piece&) const = default;
  };
  // Whether text gets a space in front of it.
  enum class Prefix : uint8_t { kNone, kSpace, kSpaceUnlessThere };

  Algorithm algorithm = Algorithm::kUnigram;
  std::vector<Piece> pieces;  // by id
  // BPE: what merges, the first ones first. Without a list two neighbours merge when there is a
  // piece that is both, in the order of scores.
  std::optional<std::vector<BpeModel::Merge>> merges;
  bool byte_fallback = false;             // an unknown character becomes its bytes; else `unknown`
  bool fuse_unknown = true;               // unknown characters in a row are one `unknown`
  int32_t unknown = -1;                   // ids; -1: none
  int32_t end_of_text = -1;               // stands behind every document
  std::vector<int32_t> document_prefix;   // before every document
  std::vector<AddedToken> added;          // looked for before anything else; ascending by id
  std::string unknown_text = " \u2047 ";  // what `unknown` decodes to

  // How text is normalised before it is cut.
  std::string charsmap;  // charsmap.h; empty: characters stay as they are
  Prefix prefix = Prefix::kSpace;
  bool prefix_once = false;     // not behind added tokens
  bool collapse_spaces = true;  // one space for many, none at either end
  bool escape_spaces = true;    // a space is U+2581
  bool added_first = false;     // all added tokens are looked for before any of this happens
  bool keep_invalid = false;    // bytes that are not UTF-8 stay; else each becomes U+FFFD

  bool operator==(const SentencePieceModel&) const = default;
};

inline constexpr std::string_view kSpaceSymbol = "\u2581";

// Every U+2581 as a space.
std::string with_spaces(std::string_view text);

// The byte that "<0x0A>" names; -1 when the text is of another form.
int byte_of_piece(std::string_view text);

// Reads SentencePiece's .model (the protobuf ModelProto of google/sentencepiece,
// sentencepiece_model.proto). Its control pieces become special added tokens; its end of a text is
// end_of_text, and its beginning, if there is one, stands before documents. UserError naming the
// file when it cannot be read, is larger than 64 MiB, is not such a file, is not consistent (pieces
// twice, empty or over 8,000 bytes; bytes missing), or is of a kind that is not supported (model
// types word and char, whitespace as suffix, a denormaliser).
SentencePieceModel read_sentencepiece(const std::filesystem::path& path);

// The same for a file in memory; errors call it `name`.
SentencePieceModel parse_sentencepiece(std::string_view file, const std::string& name);

}  // namespace tessera
