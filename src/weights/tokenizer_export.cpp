#include "weights/tokenizer_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "data/find_chat_template.h"
#include "data/record_encoder.h"
#include "hub/tokenizer_files.h"
#include "models/model_family.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// What no tokenizer_config.json beside a tokenizer.json may say: transformers would change the ids.
constexpr const char* kChanging[] = {"add_bos_token", "add_eos_token", "add_prefix_space", "legacy",
                                     "from_slow"};
// What it may say beside one that was made from a tokenizer.model: nothing of tokens.
constexpr const char* kHarmless[] = {"model_max_length", "padding_side", "truncation_side",
                                     "clean_up_tokenization_spaces", "chat_template"};

// The byte tokenizer as a byte-level BPE without merges: the same ids.
BpeModel byte_model(const Tokenizer& bytes) {
  BpeModel model;
  for (int32_t id = 0; id < bytes.vocab_size(); ++id)
    model.tokens.emplace_back(bytes.token_bytes(id));
  model.end_of_text = bytes.end_of_text();
  model.added = {{.text = std::string(bytes.token_bytes(model.end_of_text)),
                  .id = model.end_of_text,
                  .special = true}};
  return model;
}

Json read_small_json(const fs::path& path) {
  constexpr uintmax_t kMaxBytes = 1 << 20;
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMaxBytes) return {};
  return parse_shallow_json<Json>(read_file(path), path.string());
}

// The token before every document; where there is none, the one behind.
int32_t begin_of_text(const Tokenizer& tokenizer) {
  auto prefix = tokenizer.document_prefix();
  return prefix.empty() ? tokenizer.end_of_text() : prefix[0];
}

// What the tokenizer's directory, if it has one, says of the ends of a text, if it is that of a
// model.
Json token_ids(const fs::path& directory, const Tokenizer& tokenizer) {
  Json ids = Json::object();
  for (const char* name : {"config.json", "generation_config.json"}) {
    Json json = directory.empty() ? Json() : read_small_json(directory / name);
    for (const char* key : kTokenIds) {
      if (json.is_object() && json.contains(key)) ids[key] = json[key];
    }
  }
  if (!ids.contains("eos_token_id")) {
    ids["bos_token_id"] = begin_of_text(tokenizer);
    ids["eos_token_id"] = tokenizer.end_of_text();
  }
  return ids;
}

// The data of a tokenizer whose own file transformers does not read: written as tokenizer.json.
std::optional<BpeModel> rewritten(const std::string& named, const Tokenizer& tokenizer) {
  if (named == "byte") return byte_model(tokenizer);
  const auto* bpe = dynamic_cast<const ByteLevelBpe*>(&tokenizer);
  if (bpe && bpe->model().rank_is_result) return bpe->model();  // ranks of tiktoken
  return std::nullopt;
}

// Where the tokenizer comes from a .model of SentencePiece: its path.
std::optional<fs::path> sentencepiece_path(const std::string& named, const Tokenizer& tokenizer) {
  const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer);
  if (!pieces || pieces->model().keep_invalid) return std::nullopt;  // of a tokenizer.json
  fs::path file = tokenizer_file(named);
  return file.extension() == ".json" ? file.parent_path() / "tokenizer.model" : file;
}

std::string sentencepiece_json(const fs::path& path, const Tokenizer& tokenizer) {
  return format_tokenizer_json(dynamic_cast<const SentencePieceTokenizer&>(tokenizer).model(),
                               path.string());
}

// A tokenizer.json from the .model, which stays beside it.
void write_sentencepiece(const fs::path& path, const Tokenizer& tokenizer, const fs::path& to) {
  std::error_code ignored;
  for (const char* name : {"special_tokens_map.json", "added_tokens.json"}) {
    fs::remove(to / name, ignored);
  }
  write_file_atomic(to / "tokenizer.json", sentencepiece_json(path, tokenizer));
  write_file_atomic(to / "tokenizer.model", read_file(path));
  Json given = read_small_json(to / "tokenizer_config.json"), kept = Json::object();
  for (const char* key : kHarmless) {
    if (given.is_object() && given.contains(key)) kept[key] = given[key];
  }
  fs::remove(to / "tokenizer_config.json", ignored);
  if (!kept.empty()) write_json(to / "tokenizer_config.json", kept);
}

// Adds an id to those that end a text: a number or a list.
void add_end_of_text(Json& ids, int32_t id) {
  Json ends = Json::array();
  const Json given = ids.contains("eos_token_id") ? ids["eos_token_id"] : Json();
  if (given.is_array()) ends = given;
  if (given.is_number_integer()) ends.push_back(given);
  if (std::ranges::find(ends, Json(id)) == ends.end()) ends.push_back(id);
  ids["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
}

void write_chat(const ExportedChat& chat, const fs::path& to) {
  const fs::path path = to / "tokenizer_config.json";
  Json config = read_small_json(path);
  if (config.is_object()) {
    config["chat_template"] = chat.jinja;
    write_json(path, config);
    std::error_code ignored;
    fs::remove(to / "chat_template.jinja", ignored);  // which would go before it
  } else {
    write_file_atomic(to / "chat_template.jinja", chat.jinja);
  }
}

void write_configuration(const Tokenizer& tokenizer, int64_t max_context_width,
                         const fs::path& to) {
  std::error_code ignored;
  const fs::path path = to / "tokenizer_config.json";
  const bool has_json = fs::exists(to / "tokenizer.json", ignored);
  Json config = read_small_json(path);
  const bool made_here = !config.is_object();
  if (made_here) {
    if (fs::exists(path, ignored)) return;  // larger than what is changed here
    config = Json{{"tokenizer_class", "GPT2Tokenizer"},
                  {"model_max_length", max_context_width},
                  {"clean_up_tokenization_spaces", false}};
  }
  if (has_json) {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    for (const char* key : kChanging) config.erase(key);
    auto name = [&](const char* key, int32_t id) {
      if (!config.contains(key) || config[key].is_null()) config[key] = tokenizer.token_bytes(id);
    };
    // A tokenizer that has none keeps none.
    if (made_here || !tokenizer.document_prefix().empty())
      name("bos_token", begin_of_text(tokenizer));
    name("eos_token", tokenizer.end_of_text());
  }
  write_json(path, config);
}

}  // namespace

void write_json(const fs::path& path, const Json& json) {
  write_file_atomic(path, json.dump(2) + "\n");
}

std::optional<BpeModel> byte_level_model(const std::string& named, const Tokenizer& tokenizer) {
  if (named == "byte") return byte_model(tokenizer);
  const auto* bpe = dynamic_cast<const ByteLevelBpe*>(&tokenizer);
  return bpe ? std::optional(bpe->model()) : std::nullopt;
}

void check_tokenizer_export(const std::string& named, const Tokenizer& tokenizer,
                            ModelType model_type) {
  if (const ModelFamily& family = model_family(model_type); family.qwen2_tokenizer) {
    std::string why = cat("transformers reads the tokenizer of every ", family.name,
                          " model as Qwen2's (byte-level, NFC, its pattern)");
    if (dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
      throw UserError(
          cat("tokenizer '", named, "' cannot be exported with a ", family.name, " model: ", why));
    }
    const auto* bpe = dynamic_cast<const ByteLevelBpe*>(&tokenizer);
    bool same = bpe && bpe->model().nfc && bpe->model().pattern == PiecePattern::kQwen2;
    if (!same) TESSERA_WARN(cat(why, ": with '", named, "' it makes other ids of some texts"));
  }
  if (auto path = sentencepiece_path(named, tokenizer)) sentencepiece_json(*path, tokenizer);
}

ExportedChat exported_chat(const std::string& named, const Tokenizer& tokenizer,
                           const std::string& chat_style) {
  if (chat_style.empty()) return {find_chat_jinja(named), std::nullopt};
  const ChatTemplate chat = *find_chat_template(named, tokenizer, chat_style);
  if (std::string warning = answer_end_warning(tokenizer, chat); !warning.empty())
    TESSERA_WARN_ONCE(warning);
  return {chat.jinja(), find_token(tokenizer, chat.answer_end())};
}

Json write_tokenizer(const std::string& named, const Tokenizer& tokenizer,
                     const std::string& chat_style, int64_t max_context_width, const fs::path& to) {
  fs::path from = named, directory;
  std::error_code ignored;
  if (named != "byte" && fs::is_directory(from, ignored)) directory = from;
  if (is_tokenizer_file(from.filename().string())) directory = fs::absolute(from).parent_path();
  if (!directory.empty()) copy_tokenizer_files(directory, to);
  if (auto path = sentencepiece_path(named, tokenizer)) {
    write_sentencepiece(*path, tokenizer, to);
  } else if (auto data = rewritten(named, tokenizer)) {
    write_tokenizer_json(to / "tokenizer.json", *data);
    fs::remove(to / "tokenizer.model", ignored);
  } else if (directory.empty()) {
    write_file_atomic(to / "tokenizer.json", read_file(from));
  }
  write_configuration(tokenizer, max_context_width, to);
  Json ids = token_ids(directory, tokenizer);
  const fs::path generation = to / "generation_config.json";
  if (!fs::exists(generation, ignored)) write_json(generation, ids);
  if (chat_style.empty()) return ids;
  const ExportedChat chat = exported_chat(named, tokenizer, chat_style);
  write_chat(chat, to);
  if (!chat.answer_end) return ids;
  add_end_of_text(ids, *chat.answer_end);
  Json given = read_small_json(generation);
  if (given.is_object()) {
    add_end_of_text(given, *chat.answer_end);
    write_json(generation, given);
  }
  return ids;
}

}  // namespace tessera
