#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/decoder.h"
#include "generate/sampler.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct GenerationOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 128;    // of each prompt
  std::vector<int32_t> end_ids;    // that end a text, beside the tokenizer's end of text
  std::vector<std::string> stops;  // texts that end it; not empty
  std::string model;               // where the model lies, for messages
};

enum class FinishReason {
  kStop,    // an end of text or a stop text
  kLength,  // max_new_tokens
};
std::string_view name(FinishReason reason);  // "stop", "length"

// What is told while prompts are continued, of each by its number.
struct GenerationEvents {
  // More of the continuation, for every new token; it may be empty.
  std::function<void(size_t prompt, std::string_view text)> text;
  // The continuation is whole. `tokens` were sampled, an end of text not counted.
  std::function<void(size_t prompt, FinishReason reason, int64_t tokens)> end;
};

struct GenerationSpeed {
  // Of the prompts with the first token behind each, and of what was computed behind it.
  int64_t prompt_tokens = 0, tokens = 0;
  double prompt_seconds = 0, seconds = 0;
};

// Continues every prompt, at least one token each, as many at once as the decoder has rows; when a
// text ends, the next prompt takes its row. Token i of prompt p is draw i + p * 2^32 of the seed.
// So what a prompt becomes is a function of its tokens, its number and the options, whatever is
// computed beside it, as far as that holds of the decoder's logits. UserError where they are not
// finite.
GenerationSpeed generate(Decoder& decoder, const Tokenizer& tokenizer,
                         const GenerationOptions& options,
                         std::span<const std::vector<int32_t>> prompts,
                         const GenerationEvents& events);

}  // namespace tessera
