#pragma once
#include <cstdint>
#include <string>

#include "data/document_view.h"
#include "data/sample_source.h"
#include "data/token_view.h"

namespace tessera {

// Every document is a sample, as rows of ids that were made elsewhere are. A row of n ids has n - 1
// targets: the id behind each, or kIgnoreIndex where that is not learned; the last predicts
// nothing. What is missing to T = context tokens is filler, its targets kIgnoreIndex. The last id
// of a row of T + 1 is a target alone. Of a longer row T ids in succession are used, from a start
// that is uniform in [0, n - T] and a function of (seed, i).
class RowDataset final : public SampleSource {
 public:
  // What holds tokens and documents must live longer; ranges of `documents` are those of `tokens`.
  // `name` is for messages. Looks at all lengths once. UserError: there is no row, or none has two
  // tokens.
  RowDataset(TokenView tokens, DocumentView documents, int64_t context, int32_t filler,
             uint64_t seed, const std::string& name);

  int64_t context() const override { return context_; }
  int32_t filler() const override { return filler_; }
  int64_t samples() const override { return documents_.count(); }
  int64_t sample(int64_t i, const SampleRow& row) const override;

  // The share of all positions that holds no token.
  double padding() const { return padding_; }
  int64_t short_rows() const { return short_rows_; }
  // What the user is to know of rows that are shorter or longer than T; "" if there are none.
  std::string warning() const;

 private:
  TokenView tokens_;
  DocumentView documents_;
  int64_t context_;
  int32_t filler_;
  uint64_t seed_;
  std::string name_;
  int64_t short_rows_ = 0, long_rows_ = 0, longest_ = 0;
  double padding_ = 0, left_out_ = 0;  // shares: of all positions, of all tokens
};

}  // namespace tessera
