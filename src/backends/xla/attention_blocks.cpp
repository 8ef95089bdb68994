#include "backends/xla/attention_blocks.h"

#include <limits>

#include "ops/composite/dropout.h"

namespace tessera::xla {

AttentionBlocks::AttentionBlocks(MlirText& text, const TensorType& q, const TensorType& k,
                                 int64_t size, double scale, AttentionMask mask)
    : text_(text),
      tokens_(q.shape[1]),
      width_(q.shape[3]),
      size_(size),
      count_((tokens_ - 1) / size + 1),
      scale_(scale),
      mask_(mask),
      dtype_(q.dtype) {
  const int64_t batch = q.shape[0], kv_heads = k.shape[2], group = q.shape[2] / kv_heads;
  queries_ = {batch, kv_heads, group, count_ * size, width_};
  keys_ = {batch, kv_heads, count_ * size, width_};
  rows_ = {batch, kv_heads, group, count_ * size};
}

void AttentionBlocks::set_documents(const Tensor& starts) {
  documents_ = whole_blocks(starts, 1, number({}, 0));
}
void AttentionBlocks::set_dropout(double p, Bits bits) {
  dropout_ = p;
  bits_ = std::move(bits);
}

Shape AttentionBlocks::block_of(const Shape& whole, int64_t dim) const {
  Shape shape = whole;
  shape[static_cast<size_t>(dim)] = size_;
  return shape;
}

Tensor AttentionBlocks::whole_blocks(const Tensor& x, int64_t dim, const Tensor& added) const {
  return count_ * size_ == tokens_ ? x : text_.pad(x, dim, 0, count_ * size_, added);
}

Tensor AttentionBlocks::queries(const Tensor& x) const {
  const Tensor y = text_.reshape(x, {queries_[0], tokens_, queries_[1], queries_[2], width_});
  return whole_blocks(text_.transpose(y, Shape{0, 2, 3, 1, 4}), 3, text_.splat({}, dtype_, 0));
}
Tensor AttentionBlocks::keys(const Tensor& x) const {
  return whole_blocks(text_.transpose(x, Shape{0, 2, 1, 3}), 2, text_.splat({}, dtype_, 0));
}
Tensor AttentionBlocks::rows(const Tensor& x, double added) const {
  const Tensor y = text_.reshape(x, {rows_[0], rows_[1], rows_[2], tokens_});
  return whole_blocks(y, 3, filled({}, added));
}
Tensor AttentionBlocks::from_queries(const Tensor& x) const {
  const Tensor y = text_.transpose(text_.slice(x, 3, 0, tokens_), Shape{0, 3, 1, 2, 4});
  return text_.reshape(y, {rows_[0], tokens_, rows_[1] * rows_[2], width_});
}
Tensor AttentionBlocks::from_keys(const Tensor& x) const {
  return text_.transpose(text_.slice(x, 2, 0, tokens_), Shape{0, 2, 1, 3});
}
Tensor AttentionBlocks::from_rows(const Tensor& x) const {
  return text_.reshape(text_.slice(x, 3, 0, tokens_), {rows_[0], rows_[1] * rows_[2], tokens_});
}

Tensor AttentionBlocks::number(const Shape& shape, int64_t value) const {
  return text_.splat(shape, "i32", static_cast<uint64_t>(value));
}
Tensor AttentionBlocks::filled(const Shape& shape, double value) const {
  return text_.splat(shape, wide(dtype_), value);
}
Tensor AttentionBlocks::begin_of(const Tensor& i) const {
  return text_.binary("multiply", i, number({}, size_));
}
Tensor AttentionBlocks::block(const Tensor& x, int64_t dim, const Tensor& i) const {
  return text_.slice_at(x, dim, begin_of(i), size_);
}
Tensor AttentionBlocks::put(const Tensor& x, const Tensor& part, int64_t dim,
                            const Tensor& i) const {
  return text_.update_at(x, part, dim, begin_of(i));
}
Tensor AttentionBlocks::spread(const Tensor& rows, const Shape& shape) const {
  return text_.broadcast(rows, shape, Shape{0, 1, 2, 3});
}
Tensor AttentionBlocks::dot(const Tensor& a, const Tensor& b, const Shape& contract_a,
                            const Shape& contract_b) const {
  return text_.dot(a, b, 2, contract_a, contract_b, element_of(wide(dtype_)));
}

std::pair<Tensor, Tensor> AttentionBlocks::visible(const Tensor& i) const {
  Tensor oldest = number({}, 0);
  if (!mask_.causal) return {oldest, number({}, count_)};
  const Tensor query = begin_of(i);
  if (mask_.window > 0) {
    const Tensor begin = text_.binary("subtract", query, number({}, mask_.window - 1));
    oldest = text_.binary("maximum", oldest, begin);
  }
  if (documents_) {
    // Over the batch, at the block's first query: those behind it begin no earlier.
    const Tensor starts = text_.unary("negate", text_.slice_at(*documents_, 1, query, 1));
    const Tensor begin = text_.unary("negate", text_.maximum(starts, Shape{0, 1}));
    oldest = text_.binary("maximum", oldest, begin);
  }
  return {text_.binary("divide", oldest, number({}, size_)), text_.binary("add", i, number({}, 1))};
}

// [size, size], or [B, size, size] where there are documents; no tensor where all are visible.
std::optional<Tensor> AttentionBlocks::visible_pairs(const Tensor& i, const Tensor& j) const {
  if (!mask_.causal && count_ * size_ == tokens_) return {};
  Shape pairs{size_, size_};
  if (documents_) pairs.insert(pairs.begin(), rows_[0]);
  const int64_t last = std::ssize(pairs) - 1;
  auto token = [&](int64_t dim, const Tensor& block) {
    const Tensor begin = text_.spread(begin_of(block), pairs);
    return text_.binary("add", text_.iota(pairs, "i32", dim), begin);
  };
  const Tensor key = token(last, j);
  if (!mask_.causal) return text_.compare("LT", key, number(pairs, tokens_));
  const Tensor query = token(last - 1, i);
  Tensor visible = text_.compare("LE", key, query);
  if (mask_.window > 0) {
    const Tensor oldest = text_.binary("subtract", query, number(pairs, mask_.window - 1));
    visible = text_.binary("and", visible, text_.compare("GE", key, oldest));
  }
  if (documents_) {
    const Tensor oldest = text_.broadcast(block(*documents_, 1, i), pairs, Shape{0, 1});
    visible = text_.binary("and", visible, text_.compare("GE", key, oldest));
  }
  return visible;
}

Tensor AttentionBlocks::scores(const Tensor& q, const Tensor& k, const Tensor& i,
                               const Tensor& j) const {
  const Tensor products = dot(q, k, {4}, {3});
  const Tensor s = text_.binary("multiply", products, filled(products.shape, scale_));
  const std::optional<Tensor> pairs = visible_pairs(i, j);
  if (!pairs) return s;
  const Shape dims = pairs->shape.size() == 3 ? Shape{0, 3, 4} : Shape{3, 4};
  return text_.select(text_.broadcast(*pairs, s.shape, dims), s,
                      filled(s.shape, -std::numeric_limits<double>::infinity()));
}

std::function<Tensor(const Tensor&)> AttentionBlocks::dropper(const Tensor& i,
                                                              const Tensor& j) const {
  if (dropout_ == 0) return [](const Tensor& x) { return x; };
  const Tensor bits = text_.reshape(bits_(i, j), {rows_[0], rows_[1], rows_[2], size_, size_});
  const Tensor kept = text_.compare("GE", bits, number(bits.shape, dropout_threshold(dropout_)));
  return [this, kept](const Tensor& x) {
    const Tensor scale = filled(x.shape, dropout_scale(dropout_));
    return text_.select(kept, text_.binary("multiply", x, scale), filled(x.shape, 0));
  };
}

}  // namespace tessera::xla
