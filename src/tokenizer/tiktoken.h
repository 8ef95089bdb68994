#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizer/bpe_model.h"

namespace tessera {

// A file of tiktoken: a line `BASE64 RANK` for every token, whose rank is its id and its place in
// the order of merging: any two neighbours whose bytes together are a token merge. Special tokens,
// bos and the pattern are not in the file. They follow from the number of ranks:
//
//   128000   Llama 3's tokenizer.model: 256 special tokens from 128000 on, named as in Llama 3.1
//            (128000 bos, 128001 end of text); its pattern
//   100256   cl100k_base: <|endoftext|> 100257, fill-in-the-middle 100258 to 100260,
//            <|endofprompt|> 100276; the same pattern
//   50256    r50k_base, GPT-2's: <|endoftext|> 50256; GPT-2's pattern
//
// UserError naming the file when it cannot be read, has more than 16 MiB, is not such a file, or
// has another number of ranks.
BpeModel read_tiktoken(const std::filesystem::path& path);

// The same for text in memory; errors call it `name`. Any number of ranks is taken for Llama 3's
// kind if `any_count`: the special tokens follow the last rank.
BpeModel parse_tiktoken(std::string_view text, const std::string& name, bool any_count = false);

}  // namespace tessera
