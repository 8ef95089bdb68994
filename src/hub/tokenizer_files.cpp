#include "hub/tokenizer_files.h"

#include <algorithm>

#include "base/file.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The names that transformers looks for.
constexpr std::string_view kFiles[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model",       "vocab.json",
    "merges.txt",        "chat_template.jinja",   "generation_config.json"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return is_file(directory / "tokenizer.json") || is_file(directory / "tokenizer.model") ||
         (is_file(directory / "vocab.json") && is_file(directory / "merges.txt"));
}

bool is_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFiles, name) != std::end(kFiles);
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (std::string_view name : kFiles) {
    if (is_file(from / name)) write_file_atomic(to / name, read_file(from / name));
  }
}

}  // namespace tessera
