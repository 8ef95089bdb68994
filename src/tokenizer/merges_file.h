#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizer/bpe_model.h"

namespace tessera {

// GPT-2's pair of files: the vocabulary, a JSON object of tokens in the byte alphabet and their ids
// (vocab.json, encoder.json), and the merges in order of rank, a line "LEFT RIGHT" each, after a
// line that begins with "#version" or none (merges.txt, vocab.bpe). The pattern is GPT-2's; the one
// special token is the end of text: the eos_token of tokenizer_config.json beside them, or
// <|endoftext|>. UserError naming the file at fault.
BpeModel read_merges_pair(const std::filesystem::path& vocabulary,
                          const std::filesystem::path& merges);

// The same for text in memory; errors call it `name`.
BpeModel parse_merges_pair(std::string_view vocabulary, std::string_view merges,
                           const std::string& name, const std::string& end_of_text = "");

}  // namespace tessera
