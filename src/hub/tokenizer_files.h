#pragma once
#include <filesystem>
#include <string_view>

namespace tessera {

// Whether a directory holds a tokenizer: tokenizer.json, tokenizer.model, or vocab.json with
// merges.txt.
bool has_tokenizer(const std::filesystem::path& directory);

// Whether a file of this name belongs to a tokenizer or to the generation of text.
bool is_tokenizer_file(std::string_view name);

// Copies these files from one model directory to another; what is not there is left out. UserError
// when the disk fails.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tessera
