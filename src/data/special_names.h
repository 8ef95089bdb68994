#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/document_reader.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Of data that hold the name of one of the tokenizer's special tokens in a text or prompt, where it
// is ordinary characters: a sentence that says so. Else "". Looks at the first 256 KiB of text.
std::string special_name_warning(std::span<const RemoteEntry> files, DocumentReaderOptions options,
                                 const Tokenizer& tokenizer);

// The text of ids for people: a backslash stands before each such name that is ordinary characters.
std::string decode_with_names(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace tessera
