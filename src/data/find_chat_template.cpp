#include "data/find_chat_template.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/shallow_json.h"
#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// A token of tokenizer_config.json: a string, or an object with "content"; "" for none.
std::string token_of(const Json& config, const char* key) {
  const Json token = config.value(key, Json());
  const Json text = token.is_object() ? token.value("content", Json()) : token;
  return text.is_string() ? text.get<std::string>() : "";
}

std::string default_template(const Json& config) {
  const Json given = config.value("chat_template", Json());
  if (given.is_string()) return given.get<std::string>();
  if (!given.is_array()) return "";
  for (const Json& item : given) {
    if (!item.is_object() || item.value("name", Json()) != "default") continue;
    const Json text = item.value("template", Json());
    if (text.is_string()) return text.get<std::string>();
  }
  return "";
}

}  // namespace

// Not by simdjson, which takes no integers beyond 64 bits: a model_max_length is often 10^30.
ChatConfig read_chat_config(std::string_view tokenizer_config, std::string_view name) {
  const Json config = parse_shallow_json(tokenizer_config, name);
  if (!config.is_object()) throw UserError(cat("'", name, "' is not JSON, or no object"));
  return {default_template(config), token_of(config, "bos_token"), token_of(config, "eos_token")};
}

namespace {

// What the directory of a tokenizer says of conversations, and the file that says it.
struct FoundChat {
  ChatConfig config;
  std::string name;
};

FoundChat find_chat(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path directory = fs::is_directory(path, ignored) ? path : path.parent_path();
  auto text_of = [&](const fs::path& file) {
    const bool there = path != "byte" && fs::is_regular_file(file, ignored);
    return there ? std::string(MappedFile(file).text()) : "";
  };
  FoundChat found;
  const fs::path config = directory / "tokenizer_config.json";
  found.name = config.string();
  if (std::string json = text_of(config); !json.empty())
    found.config = read_chat_config(json, found.name);
  // Newer files have it in a file of its own.
  const fs::path file = directory / "chat_template.jinja";
  if (std::string jinja = text_of(file); !jinja.empty()) {
    found.config.jinja = std::move(jinja);
    found.name = file.string();
  }
  return found;
}

}  // namespace

std::string find_chat_jinja(const std::filesystem::path& path) {
  return find_chat(path).config.jinja;
}

std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& path,
                                               const Tokenizer& tokenizer,
                                               const std::string& style) {
  auto [config, name] = find_chat(path);
  const std::span<const int32_t> prefix = tokenizer.document_prefix();
  if (config.bos.empty() && !prefix.empty()) config.bos = tokenizer.token_bytes(prefix[0]);
  if (config.eos.empty()) config.eos = tokenizer.token_bytes(tokenizer.end_of_text());
  if (!style.empty()) return ChatTemplate::named(style, config.bos, config.eos);
  if (config.jinja.empty()) return std::nullopt;
  return ChatTemplate(config.jinja, config.bos, config.eos, name);
}

}  // namespace tessera
