#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/merges_file.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_file.h"
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
  std::vector<EncodedRun> encode_marked(const MarkedText& marked,
                                        std::vector<int32_t>& ids) const override {
    std::vector<EncodedRun> runs;
    auto take = [&](TextRange range, bool added) { runs.push_back({range, ids.size(), added}); };
    names_.split(
        marked.text, {.ranges = marked.markup},
        [&](std::string_view text) {
          encode(text, ids);
          const auto begin = static_cast<size_t>(text.data() - marked.text.data());
          take({begin, begin + text.size()}, false);
        },
        [&](const AddedToken& token, TextRange name) {
          ids.push_back(token.id);
          take(name, true);
        });
    return runs;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    size_t begin = ids.size();
    ids.resize(begin + text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      ids[begin + i] = static_cast<unsigned char>(text[i]);
    }
  }
  size_t cut(std::string_view, size_t from) const override { return from; }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  std::string_view token_bytes(int32_t id) const override {
    check_id(id);
    return id == 256 ? kEndOfTextName : std::string_view(&kBytes[static_cast<size_t>(id)], 1);
  }
  std::string description() const override { return "bytes, 257 tokens"; }
  uint64_t fingerprint() const override { return hash_text("tessera byte tokenizer 1"); }

 private:
  AddedTokens names_{{{.text = std::string(kEndOfTextName), .id = 256, .special = true}}};
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UserError(cat("cannot load tokenizer '", name, "': ", why,
                      "; give \"byte\", a tokenizer.json, a vocab.json with its merges.txt, a "
                      "SentencePiece .model, a tokenizer.model or .tiktoken file of ranks, or a "
                      "directory with one of them; "
                      "`tessera tokenizer train` makes one from text"));
}

// The names of GPT-2's pair: its own, and those of Hugging Face.
constexpr std::string_view kPairs[][2] = {{"vocab.json", "merges.txt"},
                                          {"encoder.json", "vocab.bpe"}};

// The other file where `path` is one of such a pair; empty if it is not.
std::filesystem::path other_half(const std::filesystem::path& path) {
  for (const auto& pair : kPairs) {
    for (size_t i : {0, 1}) {
      if (path.filename() == pair[i]) return path.parent_path() / pair[1 - i];
    }
  }
  return {};
}

std::filesystem::path file_of_tokenizer(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (std::string_view name :
       {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"}) {
    if (is_there(directory / name)) return directory / name;
  }
  std::vector<std::filesystem::path> named_freely;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    std::filesystem::path extension = entry.path().extension();
    if (extension == ".tiktoken" || extension == ".model") named_freely.push_back(entry.path());
  }
  if (named_freely.size() == 1) return named_freely[0];
  if (named_freely.empty()) refuse(directory.string(), "the directory holds no tokenizer");
  std::ranges::sort(named_freely);
  refuse(directory.string(),
         cat("it holds several files of tokenizers, ", named_freely[0].filename().string(), " and ",
             named_freely[1].filename().string(), " among them"));
}

bool is_sentencepiece_file(const std::filesystem::path& path) {
  return MappedFile(path).text().starts_with('\n');  // the first field of a protobuf
}

// A tokenizer.json that was written for the tokenizer.model beside it says the same, in a form that
// is not read here. Null where this is no such file.
std::unique_ptr<Tokenizer> sentencepiece_beside(const std::filesystem::path& json) {
  std::filesystem::path path = json.parent_path() / "tokenizer.model";
  if (json.filename() != "tokenizer.json" || !is_file(path) ||
      !is_written_here(MappedFile(json).text()) || !is_sentencepiece_file(path)) {
    return nullptr;
  }
  SentencePieceModel model = read_sentencepiece(path);
  if (format_tokenizer_json(model, path.string()) != MappedFile(json).text()) return nullptr;
  return std::make_unique<SentencePieceTokenizer>(std::move(model), path.string());
}

}  // namespace

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size() * 4);
  for (int32_t id : ids) text.append(token_bytes(id));
  return text;
}

void Tokenizer::encode_prompt(std::string_view text, std::vector<int32_t>& ids) const {
  std::span<const int32_t> prefix = document_prefix();
  ids.insert(ids.end(), prefix.begin(), prefix.end());
  encode(text, ids);
}

size_t Tokenizer::cut(std::string_view text, size_t) const { return text.size(); }

void Tokenizer::check_id(int32_t id) const {
  if (id >= 0 && id < vocab_size()) return;
  throw UserError(cat("token id ", id, " is outside the tokenizer's vocabulary [0, ", vocab_size(),
                      "): were these ids made with another tokenizer?"));
}

std::filesystem::path tokenizer_file(const std::filesystem::path& path) {
  if (path.empty()) refuse("None", "none is named");
  if (!is_there(path)) {
    const std::string name = path.string();
    const bool word = name.find_first_of("./") == std::string::npos;  // perhaps that of a model
    refuse(name, cat("there is no such file or directory",
                     word ? cat(", nor such a model in Hugging Face's cache of this machine (hf://",
                                name, " is that of the hub)")
                          : ""));
  }
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? file_of_tokenizer(path) : path;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "byte") return std::make_unique<ByteTokenizer>();
  std::filesystem::path path = tokenizer_file(name_or_path);
  if (auto other = other_half(path); !other.empty()) {
    bool merges_given = path.extension() != ".json";
    return std::make_unique<ByteLevelBpe>(merges_given ? read_merges_pair(other, path)
                                                       : read_merges_pair(path, other));
  }
  if (path.extension() == ".json") {
    auto beside = sentencepiece_beside(path);
    return beside ? std::move(beside) : load_tokenizer_json(path);
  }
  if (path.extension() == ".model" || path.extension() == ".tiktoken") {
    if (is_sentencepiece_file(path)) {
      SentencePieceModel model = read_sentencepiece(path);
      refuse_added_tokens(path.parent_path(), path.string(), [&](const std::string& token) {
        const auto& pieces = model.pieces;
        const auto found = std::ranges::find(pieces, token, &SentencePieceModel::Piece::text);
        return found == pieces.end() ? -1 : static_cast<int32_t>(found - pieces.begin());
      });
      return std::make_unique<SentencePieceTokenizer>(std::move(model), path.string());
    }
    return std::make_unique<ByteLevelBpe>(read_tiktoken(path));
  }
  refuse(name_or_path, "its kind is not supported");
}

std::unique_ptr<Tokenizer> load_tokenizer_for(const std::string& name_or_path, int64_t vocab_size) {
  auto tokenizer = load_tokenizer(name_or_path);
  if (tokenizer->text_vocab_size() > vocab_size) {
    throw UserError(cat("the tokenizer has ", tokenizer->vocab_size(),
                        " ids, the model's vocabulary only ", vocab_size,
                        ": give --tokenizer the one that it was trained with"));
  }
  return tokenizer;
}

void check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids, int64_t vocab_size) {
  for (int32_t id : ids) {
    if (id < vocab_size) continue;
    throw UserError(cat("the token '", tokenizer.token_bytes(id), "' has the id ", id,
                        ", and the model's vocabulary only ", vocab_size, " rows: leave it out"));
  }
}

std::optional<int32_t> find_token(const Tokenizer& tokenizer, std::string_view name) {
  std::vector<int32_t> ids;
  const TextRange all{0, name.size()};
  tokenizer.encode_marked({name, std::span(&all, 1)}, ids);
  return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
}

}  // namespace tessera
