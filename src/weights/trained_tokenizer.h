#pragma once
#include <filesystem>
#include <string>

#include "options/run_record.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Says that `tokenizer`, which --tokenizer names, makes other ids of a text than the one that a
// checkpoint's run was trained with; "" where it makes the same, or the record does not tell.
// UserError where that one cannot be read.
std::string other_tokenizer_text(const std::string& name, const Tokenizer& tokenizer,
                                 const std::filesystem::path& checkpoint, const RunRecord& record);

}  // namespace tessera
