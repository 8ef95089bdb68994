#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/marked_text.h"

namespace tessera {

inline constexpr std::string_view kEndOfTextName = "<|endoftext|>";

// Text to token ids and back. Text is bytes: any byte string can be encoded, invalid UTF-8
// included, and decode(encode(text)) == text, unless the tokenizer's own file asks for a change of
// the text: a normalizer, or added tokens that swallow white space. Const methods may be called
// from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of ordinary text. The names of special tokens are ordinary text here: training
  // data cannot forge them. Other added tokens are found.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  // Appends the ids of a prompt: document_prefix(), then the text, in which the names of special
  // tokens are those tokens. What Hugging Face's encode(text) gives.
  virtual void encode_prompt(std::string_view text, std::vector<int32_t>& ids) const;

  // Appends the ids of text of which parts are a template's: no document_prefix() before it, the
  // names of special tokens are those tokens where they lie inside of markup. The runs, in order,
  // say which ids are whose. A special token that its file looks for in normalized text is found
  // only where that normalization changes nothing; Hugging Face's own are not of that kind.
  virtual std::vector<EncodedRun> encode_marked(const MarkedText& text,
                                                std::vector<int32_t>& ids) const = 0;

  // The ids that stand before every document: bos where the tokenizer's file puts one there.
  virtual std::span<const int32_t> document_prefix() const { return {}; }

  // Where a long text may be cut so that its parts can be encoded one by one: the first such place
  // at or behind `from` that is easily told, else text.size().
  virtual size_t cut(std::string_view text, size_t from) const;

  // Ids lie in [0, vocab_size()).
  virtual int32_t vocab_size() const = 0;

  // What encode(), document_prefix() and end_of_text() give lies below: vocab_size() without the
  // special tokens behind all others. Many a tokenizer ends in one that its model has no row for,
  // since it fills up what is not looked at.
  virtual int32_t text_vocab_size() const { return vocab_size(); }

  // The id that stands behind every document.
  virtual int32_t end_of_text() const = 0;

  // The bytes that `id` stands for; a special token's name. Valid as long as the tokenizer.
  // UserError when the id is outside the vocabulary.
  virtual std::string_view token_bytes(int32_t id) const = 0;

  // One line for people: kind and size.
  virtual std::string description() const = 0;

  // A hash of everything that decides which ids a text becomes: equal fingerprints, equal ids. Keys
  // the cache of tokenized data.
  virtual uint64_t fingerprint() const = 0;

  // The text of the ids: their bytes, one after another, unless encoding puts something in front of
  // texts, which is left out. UserError as token_bytes.
  virtual std::string decode(std::span<const int32_t> ids) const;

 protected:
  // UserError unless id lies in the vocabulary.
  void check_id(int32_t id) const;
};

// "byte": the 256 bytes as ids 0..255, end of text 256. Otherwise a file, or a directory in which
// the first of these is taken:
//   tokenizer.json                          Hugging Face's file (tokenizer_json.h)
//   vocab.json or encoder.json, merges.txt or vocab.bpe   GPT-2's pair (merges_file.h)
//   tokenizer.model                         SentencePiece's (sentencepiece_model.h), or tiktoken's
//                                           ranks (tiktoken.h), by its first byte
//   a single NAME.model or NAME.tiktoken    the same
// Where a tokenizer.json is what an export wrote for the tokenizer.model beside it, that one is
// taken: the same tokenizer as before the export. UserError otherwise.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path);

// The id that a special token's name is in markup; nullopt where the name is several tokens.
std::optional<int32_t> find_token(const Tokenizer& tokenizer, std::string_view name);

// As load_tokenizer(), of a model with a vocabulary of this size. UserError if texts get ids
// beyond.
std::unique_ptr<Tokenizer> load_tokenizer_for(const std::string& name_or_path, int64_t vocab_size);

// UserError where one of the tokenizer's ids is none of a vocabulary of this size.
void check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids, int64_t vocab_size);

// The file that load_tokenizer() takes of a directory, or the file itself. UserError where there is
// none.
std::filesystem::path tokenizer_file(const std::filesystem::path& path);

}  // namespace tessera
