#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "models/model_config.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// A file of an export as transformers writes it.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json);

// Writes the files of a tokenizer, which --tokenizer calls `named`, from which transformers'
// AutoTokenizer makes its ids. Those of its directory are copied. SentencePiece's models, ranks of
// tiktoken and bytes get a tokenizer.json, since transformers reads the first two otherwise, and
// the last not at all. Beside a tokenizer.json the tokenizer_config.json names the class that reads
// it as it stands, and loses what would change it on the way (transformers' own classes build most
// of it anew).
//
// With a chat template `chat_style` (data/chat_template.h; "": the tokenizer's own stays) the
// tokenizer_config.json has that, and the token that ends an answer ends texts too.
//
// Returns the ids that go into the configurations: those of the tokenizer's directory if that is a
// model's, else the tokenizer's own ends of a text. UserError: files that are gone, a full disk,
// what check_tokenizer_export() reports.
nlohmann::ordered_json write_tokenizer(const std::string& named, const Tokenizer& tokenizer,
                                       const std::string& chat_style, int64_t max_context_width,
                                       const std::filesystem::path& to);

// What a model of conversations is used with.
struct ExportedChat {
  std::string jinja;                  // "": there is no template
  std::optional<int32_t> answer_end;  // of a style: the id of the token that ends an answer
};
// Of the style, or else of the tokenizer. UserError: it is not known, or needs a token that the
// tokenizer lacks.
ExportedChat exported_chat(const std::string& named, const Tokenizer& tokenizer,
                           const std::string& chat_style);

// A byte-level BPE with the same ids: bytes, of which it has no merges, ranks of tiktoken, and what
// is one. nullopt for SentencePiece's.
std::optional<BpeModel> byte_level_model(const std::string& named, const Tokenizer& tokenizer);

// UserError naming what of this tokenizer transformers has no words for. Where it reads the
// tokenizers of a family as Qwen2's, whatever the files say, SentencePiece's are refused, and
// others than Qwen2's get a warning.
void check_tokenizer_export(const std::string& named, const Tokenizer& tokenizer,
                            ModelType model_type);

}  // namespace tessera
