#include "data/packed_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

PackedDataset::PackedDataset(TokenView tokens, int64_t context, int32_t end_of_text,
                             const std::string& name, DocumentView documents)
    : tokens_(tokens), documents_(documents), context_(context), end_of_text_(end_of_text) {
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
    find_documents(begin, inputs, read, row.document_starts);
  }
  if (tokens_.all_learned()) return static_cast<int64_t>(predicted);
  return std::ssize(targets) - std::ranges::count(targets, kIgnoreIndex);
}

// Where the document of each token begins in the window that begins with token `begin`, of which
// `read` are tokens.
void PackedDataset::find_documents(int64_t begin, std::span<const int32_t> inputs, size_t read,
                                   std::span<int32_t> starts) const {
  if (documents_.count() == 0) {
    int32_t start = 0;
    for (size_t t = 0; t < inputs.size(); ++t) {
      starts[t] = start;
      if (inputs[t] == end_of_text_) start = static_cast<int32_t>(t) + 1;
    }
    return;
  }
  const int64_t first_token = tokens_.begin() + begin;
  const int64_t behind = first_token + static_cast<int64_t>(read);
  const int64_t first = documents_.document_of(first_token);
  const int64_t last = documents_.document_of(behind - 1);
  documents_.slice(first, last - first + 1).for_each([&](TokenRange range) {
    const auto from = static_cast<size_t>(std::max(range.begin, first_token) - first_token);
    const auto to = static_cast<size_t>(std::min(range.end, behind) - first_token);
    std::ranges::fill(starts.subspan(from, to - from), static_cast<int32_t>(from));
  });
  std::ranges::fill(starts.subspan(read), static_cast<int32_t>(read));
}

}  // namespace tessera
