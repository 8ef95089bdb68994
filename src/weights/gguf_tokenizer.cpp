#include "weights/gguf_tokenizer.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/sentencepiece.h"
#include "weights/tokenizer_export.h"

namespace tessera {
namespace {

// Kinds of tokens, as llama.cpp numbers them; SentencePiece's are the same.
constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

std::string_view pattern_name(PiecePattern pattern) {
  switch (pattern) {
    case PiecePattern::kGpt2: return "gpt-2";
    case PiecePattern::kLlama3: return "llama-bpe";
    case PiecePattern::kQwen2: return "qwen2";
  }
  return "default";
}

std::string unused_name(int64_t id) { return cat("[PAD", id, "]"); }

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
  void add(std::string text, int32_t kind) {
    texts.push_back(std::move(text));
    kinds.push_back(kind);
  }
  void write(GgufWriter& file, int64_t vocab_size) {
    texts.resize(std::min(texts.size(), static_cast<size_t>(vocab_size)));
    kinds.resize(texts.size());
    while (std::ssize(texts) < vocab_size) add(unused_name(std::ssize(texts)), kUnused);
    file.texts("tokenizer.ggml.tokens", texts);
    file.numbers("tokenizer.ggml.token_type", kinds);
  }
};

int32_t kind_of(const AddedToken& token) { return token.special ? kControl : kUserDefined; }

void write_byte_level(GgufWriter& file, const BpeModel& model, int64_t vocab_size) {
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", pattern_name(model.pattern));
  Tokens tokens;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string& bytes = model.tokens[id];
    const AddedToken* added = model.find_added(static_cast<int32_t>(id));
    if (added)
      tokens.add(added->text, kind_of(*added));
    else if (bytes.empty())
      tokens.add(unused_name(static_cast<int64_t>(id)), kUnused);
    else
      tokens.add(to_byte_alphabet(bytes), kNormal);
  }
  tokens.write(file, vocab_size);
  std::vector<std::string> merges;
  for (const BpeModel::Merge& merge : model.merges) {
    merges.push_back(cat(to_byte_alphabet(model.tokens[static_cast<size_t>(merge.left)]), " ",
                         to_byte_alphabet(model.tokens[static_cast<size_t>(merge.right)])));
  }
  file.texts("tokenizer.ggml.merges", merges);
}

void write_pieces(GgufWriter& file, const SentencePieceModel& model, int64_t vocab_size) {
  const bool bpe = model.algorithm == SentencePieceModel::Algorithm::kBpe;
  file.text("tokenizer.ggml.model", bpe ? "llama" : "t5");
  file.text("tokenizer.ggml.pre", "default");
  Tokens tokens;
  std::vector<float> scores;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    tokens.add(piece.text, static_cast<int32_t>(piece.kind));
    scores.push_back(piece.score);
  }
  // Where a list says what merges first, its order is that of the scores there.
  if (bpe && model.merges) {
    for (size_t rank = model.merges->size(); rank-- > 0;)
      scores[static_cast<size_t>((*model.merges)[rank].result)] = -static_cast<float>(rank);
  }
  for (const AddedToken& added : model.added) {
    const auto id = static_cast<size_t>(added.id);
    if (added.ordinary || id >= tokens.kinds.size()) continue;
    const bool unknown = static_cast<int32_t>(id) == model.unknown;
    if (!unknown) tokens.kinds[id] = kind_of(added);
  }
  scores.resize(static_cast<size_t>(vocab_size), -1000.0f);
  tokens.write(file, vocab_size);
  file.reals("tokenizer.ggml.scores", scores);
  if (model.unknown >= 0) file.number("tokenizer.ggml.unknown_token_id", model.unknown);
  file.truth("tokenizer.ggml.add_space_prefix", model.prefix != SentencePieceModel::Prefix::kNone);
  file.truth("tokenizer.ggml.remove_extra_whitespaces", model.collapse_spaces);
  if (!bpe && !model.charsmap.empty())
    file.bytes("tokenizer.ggml.precompiled_charsmap", model.charsmap);
}

}  // namespace

void write_gguf_tokenizer(GgufWriter& file, const std::string& named, const Tokenizer& tokenizer,
                          const std::string& chat_style, int64_t vocab_size) {
  if (auto bpe = byte_level_model(named, tokenizer)) {
    write_byte_level(file, *bpe, vocab_size);
  } else if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
    write_pieces(file, pieces->model(), vocab_size);
  } else {
    throw UserError(cat("tokenizer '", named, "' cannot be written to a GGUF file"));
  }
  auto prefix = tokenizer.document_prefix();
  const int32_t end = tokenizer.end_of_text();
  file.number("tokenizer.ggml.bos_token_id", prefix.empty() ? end : prefix[0]);
  file.number("tokenizer.ggml.eos_token_id", end);
  file.truth("tokenizer.ggml.add_bos_token", !prefix.empty());
  file.truth("tokenizer.ggml.add_eos_token", false);
  const ExportedChat chat = exported_chat(named, tokenizer, chat_style);
  if (chat.answer_end) file.number("tokenizer.ggml.eot_token_id", *chat.answer_end);
  if (!chat.jinja.empty()) file.text("tokenizer.chat_template", chat.jinja);
}

}  // namespace tessera
