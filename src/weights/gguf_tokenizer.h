#pragma once
#include <cstdint>
#include <string>

#include "hub/gguf_writer.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Writes the keys tokenizer.ggml.* of a tokenizer, which --tokenizer calls `named`: byte-level BPE
// ("gpt2" there, ranks of tiktoken and bytes too) or SentencePiece's ("llama", "t5"). Ids up to
// `vocab_size` that it does not have are unused tokens, those beyond are left out. And the chat
// template `chat_style`, with the token that ends its answers, or the tokenizer's own.
void write_gguf_tokenizer(GgufWriter& file, const std::string& named, const Tokenizer& tokenizer,
                          const std::string& chat_style, int64_t vocab_size);

}  // namespace tessera
