#include "data/synthetic_tokens.h"

#include "base/error.h"
#include "base/random.h"

namespace tessera {

SyntheticTokens::SyntheticTokens(uint64_t seed, int64_t sequences, int64_t context,
                                 int64_t vocab_size)
    : seed_(seed), sequences_(sequences), context_(context), vocab_size_(vocab_size) {
  TESSERA_CHECK(sequences > 0 && context > 0 && context < int64_t{1} << 31 && vocab_size > 0 &&
                vocab_size <= int64_t{1} << 31 && sequences < (int64_t{1} << 62) / context);
}

void SyntheticTokens::read(int64_t begin, std::span<int32_t> out) const {
  constexpr uint64_t kStream = stream_of("data.synthetic");
  int64_t sequence = begin / context_, position = begin % context_;
  for (int32_t& id : out) {
    // Four billion elements of the stream for every sequence.
    const uint64_t index =
        (static_cast<uint64_t>(sequence) << 32) | static_cast<uint64_t>(position);
    id = static_cast<int32_t>(
        random_below(seed_, kStream, index, static_cast<uint64_t>(vocab_size_)));
    if (++position == context_) {
      position = 0;
      ++sequence;
    }
  }
}

}  // namespace tessera
