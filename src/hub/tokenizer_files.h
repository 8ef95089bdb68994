#pragma once
#include <filesystem>
#include <string_view>

namespace tessera {

// Whether a directory holds a tokenizer: tokenizer.json, tokenizer.model, or GPT-2's pair, which is
// vocab.json with merges.txt or, under its first names, encoder.json with vocab.bpe.
bool has_tokenizer(const std::filesystem::path& directory);

// Whether a file of this name belongs to a tokenizer or to the generation of text.
bool is_tokenizer_file(std::string_view name);

// Copies these files from one model directory to another, under the names by which transformers
// finds them; what is not there is left out. UserError
// when the disk fails.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tessera
