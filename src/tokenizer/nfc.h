#pragma once
#include <string>
#include <string_view>

namespace tessera {

// `text` in Unicode normalization form C (UAX 15) as of Unicode 9.0, as Hugging Face's tokenizers
// normalize it: later marks stay where they are. Bytes that are not part of valid
// UTF-8 stay as they are, and what stands between them is normalized by itself. The view is into
// `text` where nothing had to change, else into `buffer`.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace tessera
