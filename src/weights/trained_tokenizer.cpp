#include "weights/trained_tokenizer.h"

#include "base/hash.h"
#include "base/text.h"

namespace tessera {

std::string other_tokenizer_text(const std::string& name, const Tokenizer& tokenizer,
                                 const std::filesystem::path& checkpoint, const RunRecord& record) {
  const uint64_t mine = tokenizer.fingerprint();
  if (!record.tokenizer || record.tokenizer->fingerprint == mine) return "";
  // Another version of this program may count other things among those that decide the ids.
  const uint64_t theirs = load_tokenizer(tokenizer_of(checkpoint, record))->fingerprint();
  if (theirs == mine) return "";
  return cat("--tokenizer ", name, " is another one than that of checkpoint '", checkpoint.string(),
             "' (fingerprints ", hex(mine), " and ", hex(theirs),
             "): its ids mean other words to the model");
}

}  // namespace tessera
