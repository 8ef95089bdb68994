#include "hub/tokenizer_files.h"

#include <algorithm>
#include <utility>

#include "base/file.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The names that transformers looks for.
constexpr std::string_view kFiles[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model",       "vocab.json",
    "merges.txt",        "chat_template.jinja",   "generation_config.json"};

// GPT-2's own names of two of them.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"encoder.json", "vocab.json"}, {"vocab.bpe", "merges.txt"}};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return is_file(directory / "tokenizer.json") || is_file(directory / "tokenizer.model") ||
         (is_file(directory / "vocab.json") && is_file(directory / "merges.txt")) ||
         (is_file(directory / "encoder.json") && is_file(directory / "vocab.bpe"));
}

bool is_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFiles, name) != std::end(kFiles) ||
         std::ranges::any_of(kRenamed, [&](const auto& r) { return r.first == name; });
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (auto [own, name] : kRenamed) {
    if (is_file(from / own)) write_file_atomic(to / name, read_file(from / own));
  }
  for (std::string_view name : kFiles) {
    if (is_file(from / name)) write_file_atomic(to / name, read_file(from / name));
  }
}

}  // namespace tessera
