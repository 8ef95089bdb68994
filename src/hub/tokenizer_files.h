#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/attached_files.h"

namespace tessera {

// Whether a directory holds a tokenizer: tokenizer.json, tokenizer.model, a single NAME.model or
// NAME.tiktoken, or GPT-2's pair, which is vocab.json with merges.txt or, under its first names,
// encoder.json with vocab.bpe.
bool has_tokenizer(const std::filesystem::path& directory);

// The same of the names of its files.
bool has_tokenizer_among(const std::vector<std::string>& names);

// Whether a file of this name belongs to a tokenizer or to the generation of text.
bool is_tokenizer_file(std::string_view name);

// All such names.
std::vector<std::string> tokenizer_file_names();

// Copies these files from one model directory to another, under the names by which transformers
// finds them; what is not there is left out. UserError
// when the disk fails.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

// A tokenizer as a checkpoint keeps it.
struct TokenizerFiles {
  // What load_tokenizer() takes, in the checkpoint: "tokenizer", "tokenizer/NAME", or "byte".
  std::string place;
  std::vector<AttachedFile> files;  // by name; none of "byte"
};

// Reads the files of the tokenizer that load_tokenizer(name) opens: of a directory all that belong
// to a tokenizer, of a file this one and those beside it, and what the export of a model wants to
// know (config.json). UserError naming the file that cannot be read.
TokenizerFiles read_tokenizer_files(const std::string& name);

// The `vocab_size` of the dict that nanoGPT pickles beside its files of ids, meta.pkl. Nothing of
// it is run. UserError naming the file: it cannot be read, is larger than 16 MiB, needs more than
// plain values, or has no such number above 0.
int64_t read_meta_vocabulary(const std::filesystem::path& path);

}  // namespace tessera
