#include "tokenizer/tokenizer.h"

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes{};
  for (int b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = static_cast<char>(b);
  return bytes;
}();

class ByteTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    size_t begin = ids.size();
    ids.resize(begin + text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      ids[begin + i] = static_cast<unsigned char>(text[i]);
    }
  }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  std::string_view token_bytes(int32_t id) const override {
    check_id(id);
    return id == 256 ? kEndOfTextName : std::string_view(&kBytes[static_cast<size_t>(id)], 1);
  }
  std::string description() const override { return "bytes, 257 tokens"; }
  uint64_t fingerprint() const override { return hash_text("tessera byte tokenizer 1"); }
};

}  // namespace

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size() * 4);
  for (int32_t id : ids) text.append(token_bytes(id));
  return text;
}

void Tokenizer::check_id(int32_t id) const {
  if (id >= 0 && id < vocab_size()) return;
  throw UserError(cat("token id ", id, " is outside the tokenizer's vocabulary [0, ", vocab_size(),
                      "): were these ids made with another tokenizer?"));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path) {
  constexpr std::string_view kSupported =
      "; give \"byte\", a tokenizer.json file (byte-level BPE) or a directory that holds one; "
      "`tessera tokenizer train` makes one from text";
  if (name_or_path == "byte") return std::make_unique<ByteTokenizer>();
  std::filesystem::path path = name_or_path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "tokenizer.json";
  if (name_or_path.empty() || !std::filesystem::exists(path, ignored)) {
    throw UserError(cat("cannot find tokenizer '", name_or_path, "': no file '", path.string(), "'",
                        kSupported));
  }
  if (path.extension() != ".json") {
    throw UserError(
        cat("cannot load tokenizer '", name_or_path, "': its kind is not supported", kSupported));
  }
  return std::make_unique<ByteLevelBpe>(read_tokenizer_json(path));
}

}  // namespace tessera
