#include "data/packed_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

PackedDataset::PackedDataset(TokenView tokens, int64_t context, int32_t end_of_text,
                             const std::string& name)
    : tokens_(tokens), context_(context), end_of_text_(end_of_text) {
  TESSERA_CHECK(context > 0, cat("context ", context));
  if (tokens.count() < 2) {
    throw UserError(cat("data set ", name, " is empty: it has ", tokens.count(),
                        " tokens, and at least 2 are needed"));
  }
  if (context > tokens.count()) {
    throw UserError(cat("the context is longer than the data: --max_context_width is ", context,
                        ", data set ", name, " has ", tokens.count(),
                        " tokens; give more text or a shorter context"));
  }
  samples_ = (tokens.count() - 2) / context + 1;
}

int64_t PackedDataset::sample(int64_t w, const SampleRow& row) const {
  const std::span<int32_t> inputs = row.inputs, targets = row.targets;
  TESSERA_CHECK(w >= 0 && w < samples_, cat("window ", w, " of ", samples_));
  TESSERA_CHECK(std::ssize(inputs) == context_ && std::ssize(targets) == context_);
  const int64_t begin = w * context_;
  const int64_t left = tokens_.count() - begin;  // at least 2
  const auto read = static_cast<size_t>(std::min(context_, left));
  const auto predicted = static_cast<size_t>(std::min(context_, left - 1));
  tokens_.copy(begin, inputs.first(read));
  std::ranges::fill(inputs.subspan(read), end_of_text_);
  tokens_.copy_targets(begin + 1, targets.first(predicted));
  std::ranges::fill(targets.subspan(predicted), kIgnoreIndex);
  if (!row.document_starts.empty()) {
    TESSERA_CHECK(std::ssize(row.document_starts) == context_);
    int32_t start = 0;
    for (size_t t = 0; t < inputs.size(); ++t) {
      row.document_starts[t] = start;
      if (inputs[t] == end_of_text_) start = static_cast<int32_t>(t) + 1;
    }
  }
  if (tokens_.all_learned()) return static_cast<int64_t>(predicted);
  return std::ssize(targets) - std::ranges::count(targets, kIgnoreIndex);
}

}  // namespace tessera
