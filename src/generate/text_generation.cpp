#include "generate/text_generation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/clock.h"
#include "base/interruption.h"
#include "generate/text_output.h"

namespace tessera {
namespace {

// A text that grows in a row of the decoder.
struct Growing {
  size_t prompt;
  std::vector<int32_t> ids;
  TextOutput output;
  int64_t tokens = 0;  // behind the prompt
};

class Generation {
 public:
  Generation(Decoder& decoder, const Tokenizer& tokenizer, const GenerationOptions& options,
             std::span<const std::vector<int32_t>> prompts, const GenerationEvents& events)
      : decoder_(decoder),
        tokenizer_(tokenizer),
        options_(options),
        prompts_(prompts),
        events_(events),
        sampler_(options.sampling),
        rows_(static_cast<size_t>(decoder.rows())) {}

  GenerationSpeed run() {
    for (;;) {
      const double start = monotonic_seconds();
      for (size_t row = 0; row < rows_.size(); ++row) {
        while (!rows_[row] && next_ < prompts_.size()) begin(row);
      }
      const double begun = monotonic_seconds();
      speed_.prompt_seconds += begun - start;
      if (!step()) return speed_;
      speed_.seconds += monotonic_seconds() - begun;
    }
  }

 private:
  // The next prompt and its first token, behind which it may have ended.
  void begin(size_t row) {
    const size_t prompt = next_++;
    rows_[row].emplace(Growing{prompt, prompts_[prompt], TextOutput(options_.stops)});
    if (options_.max_new_tokens == 0) return end(row, FinishReason::kLength);
    check_interruption();
    speed_.prompt_tokens += std::ssize(rows_[row]->ids);
    accept(row, decoder_.next_logits(rows_[row]->ids, static_cast<int64_t>(row)));
  }

  // One token of every text; false if there is none.
  bool step() {
    texts_.clear();
    for (size_t row = 0; row < rows_.size(); ++row)
      if (rows_[row]) texts_.push_back({static_cast<int64_t>(row), rows_[row]->ids});
    if (texts_.empty()) return false;
    check_interruption();
    auto logits = decoder_.next_logits(texts_);
    for (size_t i = 0; i < texts_.size(); ++i)
      accept(static_cast<size_t>(texts_[i].row), logits[i]);
    speed_.tokens += std::ssize(texts_);
    return true;
  }

  void accept(size_t row, std::span<const float> logits) {
    Growing& text = *rows_[row];
    // Rows beyond the tokenizer's ids stand for nothing.
    logits = logits.first(std::min(logits.size(), static_cast<size_t>(tokenizer_.vocab_size())));
    if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
      throw UserError(
          cat("the model's outputs are not finite: its training diverged; use a checkpoint before ",
              options_.model));
    }
    auto draw = (static_cast<uint64_t>(text.prompt) << 32) + static_cast<uint64_t>(text.tokens);
    int32_t token = sampler_.choose(logits, draw);
    if (token == tokenizer_.end_of_text() || std::ranges::count(options_.end_ids, token) > 0)
      return end(row, FinishReason::kStop);
    text.ids.push_back(token);
    ++text.tokens;
    events_.text(text.prompt, text.output.add(tokenizer_.token_bytes(token)));
    if (text.output.stopped()) return end(row, FinishReason::kStop);
    if (text.tokens == options_.max_new_tokens) end(row, FinishReason::kLength);
  }

  void end(size_t row, FinishReason reason) {
    Growing& text = *rows_[row];
    events_.text(text.prompt, text.output.finish());
    events_.end(text.prompt, reason, text.tokens);
    rows_[row].reset();
    // What the next text has in common with this one would have other last bits than computed anew.
    decoder_.forget(static_cast<int64_t>(row));
  }

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  const GenerationOptions& options_;
  std::span<const std::vector<int32_t>> prompts_;
  const GenerationEvents& events_;
  Sampler sampler_;
  std::vector<std::optional<Growing>> rows_;
  std::vector<Decoder::Text> texts_;
  size_t next_ = 0;  // prompt
  GenerationSpeed speed_;
};

}  // namespace

std::string_view name(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

GenerationSpeed generate(Decoder& decoder, const Tokenizer& tokenizer,
                         const GenerationOptions& options,
                         std::span<const std::vector<int32_t>> prompts,
                         const GenerationEvents& events) {
  return Generation(decoder, tokenizer, options, prompts, events).run();
}

}  // namespace tessera
