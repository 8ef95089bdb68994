#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/document_view.h"
#include "data/sample_source.h"
#include "data/token_view.h"

namespace tessera {

// The tokens t of a data set, cut into windows of T = context tokens without loss: window w reads
// t[wT .. wT+T) and predicts t[wT+1 .. wT+T+1), so that every token but the first is predicted
// exactly once an epoch; one that is not learned is kIgnoreIndex as a target. Where the last window
// runs past the end of the data its inputs are end-of-text and its targets kIgnoreIndex. Windows
// may begin and end inside a document.
class PackedDataset final : public SampleSource {
 public:
  // `tokens` is not copied: what holds them must live longer. `name` is for messages.
  // `documents` are those of the store of `tokens`; where there are none, nothing else tells them
  // apart, and the token behind an end-of-text begins one. UserError: fewer than two tokens
  // ("empty"), or fewer than `context`.
  PackedDataset(TokenView tokens, int64_t context, int32_t end_of_text, const std::string& name,
                DocumentView documents = {});

  int64_t context() const override { return context_; }
  int32_t filler() const override { return end_of_text_; }
  int64_t samples() const override { return samples_; }  // ceil((tokens - 1) / context)
  int64_t sample(int64_t w, const SampleRow& row) const override;

 private:
  void find_documents(int64_t begin, std::span<const int32_t> inputs, size_t read,
                      std::span<int32_t> starts) const;

  TokenView tokens_;
  DocumentView documents_;
  int64_t context_;
  int32_t end_of_text_;
  int64_t samples_;
};

}  // namespace tessera
