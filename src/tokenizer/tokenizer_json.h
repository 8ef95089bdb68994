#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizer/bpe_model.h"

namespace tessera {

// Hugging Face's tokenizer.json, as far as it describes GPT-2's kind of tokenizer: model BPE with
// every byte in its vocabulary, no normalizer, pre-tokenizer ByteLevel (add_prefix_space false),
// post-processor none or ByteLevel, decoder ByteLevel, special added tokens with <|endoftext|>
// among them. Merges may be written "a b" or ["a", "b"]. Any other component is refused by its
// name.

// UserError naming the file when it cannot be read, is larger than 256 MiB, is not such a file or
// is not consistent (ids with gaps, merges of unknown tokens).
BpeModel read_tokenizer_json(const std::filesystem::path& path);

// The same for text in memory; errors call it `name`.
BpeModel parse_tokenizer_json(std::string_view text, const std::string& name);

std::string format_tokenizer_json(const BpeModel& model);

// Atomic: the file is there whole or not at all.
void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model);

}  // namespace tessera
