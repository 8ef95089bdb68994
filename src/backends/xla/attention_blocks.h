#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "backends/xla/mlir_text.h"
#include "ops/composite/attention.h"
#include "ops/wide.h"

namespace tessera::xla {

// Attention in blocks of as many queries as keys. Inside, tensors of queries are [B, Hk, G, T, D],
// those of keys [B, Hk, T, D] and those of rows of scores [B, Hk, G, T], with G = H / Hk and T made
// up to whole blocks; scores of a pair of blocks are [B, Hk, G, size, size] in the dtype of
// statistics. Numbers of blocks are i32 scalars.
class AttentionBlocks {
 public:
  // Types of the op's q and k.
  AttentionBlocks(MlirText& text, const TensorType& q, const TensorType& k, int64_t size,
                  double scale, AttentionMask mask);
  void set_documents(const Tensor& starts);
  // bits(i, j): i32, of the scores of queries i and keys j in their order.
  using Bits = std::function<Tensor(const Tensor& i, const Tensor& j)>;
  void set_dropout(double p, Bits bits);

  int64_t count() const { return count_; }
  const Shape& of_queries() const { return queries_; }
  const Shape& of_keys() const { return keys_; }
  const Shape& of_rows() const { return rows_; }
  Shape block_of(const Shape& whole, int64_t dim) const;

  // Of the op's operands [B, T, h, D], of a statistic [B, H, T]; and back.
  Tensor queries(const Tensor& x) const;
  Tensor keys(const Tensor& x) const;
  Tensor rows(const Tensor& x, double added) const;
  Tensor from_queries(const Tensor& x) const;
  Tensor from_keys(const Tensor& x) const;
  Tensor from_rows(const Tensor& x) const;

  // Block i of x along dim; x with another one there.
  Tensor block(const Tensor& x, int64_t dim, const Tensor& i) const;
  Tensor put(const Tensor& x, const Tensor& part, int64_t dim, const Tensor& i) const;
  // The first block of keys that the queries of block i see, and the one behind the last.
  std::pair<Tensor, Tensor> visible(const Tensor& i) const;
  // Of queries q of block i and keys k of block j; minus infinity where the key is hidden.
  Tensor scores(const Tensor& q, const Tensor& k, const Tensor& i, const Tensor& j) const;
  // What drops elements of scores i, j.
  std::function<Tensor(const Tensor&)> dropper(const Tensor& i, const Tensor& j) const;

  // In the dtype of statistics: a product of each key/value head, a constant; and in q's dtype.
  Tensor dot(const Tensor& a, const Tensor& b, const Shape& contract_a,
             const Shape& contract_b) const;
  Tensor filled(const Shape& shape, double value) const;
  Tensor widened(const Tensor& x) const { return text_.convert(x, element_of(wide(dtype_))); }
  Tensor narrowed(const Tensor& x) const { return text_.convert(x, element_of(dtype_)); }
  // A number a row, for all elements of the row.
  Tensor spread(const Tensor& rows, const Shape& shape) const;

 private:
  Tensor number(const Shape& shape, int64_t value) const;
  Tensor begin_of(const Tensor& i) const;
  Tensor whole_blocks(const Tensor& x, int64_t dim, const Tensor& added) const;
  std::optional<Tensor> visible_pairs(const Tensor& i, const Tensor& j) const;

  MlirText& text_;
  int64_t tokens_, width_, size_, count_;
  Shape queries_, keys_, rows_;
  double scale_;
  AttentionMask mask_;
  DType dtype_;
  std::optional<Tensor> documents_;  // [B, T]
  double dropout_ = 0;
  Bits bits_;
};

}  // namespace tessera::xla
