#pragma once
#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace tessera {

// Whether text is a name on Hugging Face's hub, "org/name". No file of that path is meant to exist.
inline bool is_hub_name(std::string_view text) {
  auto letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size()) return false;
  std::string_view organisation = text.substr(0, slash), name = text.substr(slash + 1);
  return organisation != "." && organisation != ".." && std::ranges::all_of(organisation, letter) &&
         std::ranges::all_of(name, letter);
}

// Whether only files are called so: by the ending of what is read of data, models and tokenizers.
inline bool is_file_name(std::string_view name) {
  constexpr std::array<std::string_view, 16> kEnds{
      ".txt", ".json", ".jsonl", ".ndjson", ".parquet",  ".arrow",       ".feather", ".bin",
      ".gz",  ".zst",  ".xz",    ".model",  ".tiktoken", ".safetensors", ".bpe",     ".jinja"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace tessera
