#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/document_view.h"
#include "data/sample_source.h"
#include "data/token_view.h"

namespace tessera {

// Documents packed into windows of T = context tokens without cutting any that fits (best_fit.h).
// Targets do not leave a document: the last token of a piece predicts the next of its document, and
// where there is none, nothing. So every token but the first of each document is predicted exactly
// once an epoch; one that is not learned is kIgnoreIndex. Behind the last piece of a window stands
// filler. The windows depend on the lengths of the documents and their order alone.
class BestFitDataset final : public SampleSource {
 public:
  // What holds tokens and documents must live longer; ranges of `documents` are those of `tokens`.
  // `name` is for messages. In memory: 8 bytes a piece and a window, and while it is made 40 for
  // each of `buffer` pieces. UserError: there is no document, or none has two tokens.
  BestFitDataset(TokenView tokens, DocumentView documents, int64_t context, int32_t filler,
                 const std::string& name, int64_t buffer = 1 << 16);

  int64_t context() const override { return context_; }
  int32_t filler() const override { return filler_; }
  int64_t samples() const override { return static_cast<int64_t>(windows_.size()) - 1; }
  int64_t sample(int64_t w, const SampleRow& row) const override;

  // The share of all positions that holds no token.
  double padding() const { return padding_; }
  // Documents longer than the context, which are cut.
  int64_t cut_documents() const { return cut_documents_; }

 private:
  // Part `part` of a document: its tokens from part * T on, T or as many as there are.
  struct Piece {
    uint64_t document : 40, part : 24;
  };
  void add(const struct PackedWindow& window);

  TokenView tokens_;
  DocumentView documents_;
  int64_t context_;
  int32_t filler_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> windows_{0};  // where the pieces of each end
  int64_t cut_documents_ = 0;
  double padding_ = 0;
};

}  // namespace tessera
