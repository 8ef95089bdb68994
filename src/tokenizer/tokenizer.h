#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::string_view kEndOfTextName = "<|endoftext|>";

// Text to token ids and back. Text is bytes: any byte string can be encoded, invalid UTF-8
// included, and decode(encode(text)) == text. Const methods may be called from several threads at
// once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of ordinary text. The names of special tokens are ordinary text here: training
  // data cannot forge them.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  // Ids lie in [0, vocab_size()).
  virtual int32_t vocab_size() const = 0;

  // The id that stands between documents.
  virtual int32_t end_of_text() const = 0;

  // The bytes that `id` stands for; a special token's name. Valid as long as the tokenizer.
  // UserError when the id is outside the vocabulary.
  virtual std::string_view token_bytes(int32_t id) const = 0;

  // One line for people: kind and size.
  virtual std::string description() const = 0;

  // A hash of everything that decides which ids a text becomes: equal fingerprints, equal ids. Keys
  // the cache of tokenized data.
  virtual uint64_t fingerprint() const = 0;

  // The bytes of all ids, one after another. UserError as token_bytes.
  std::string decode(std::span<const int32_t> ids) const;

 protected:
  // UserError unless id lies in the vocabulary.
  void check_id(int32_t id) const;
};

// "byte": the 256 bytes as ids 0..255, end of text 256. A tokenizer.json file, or a directory that
// holds one: byte-level BPE (tokenizer_json.h says which are read). UserError otherwise.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path);

}  // namespace tessera
