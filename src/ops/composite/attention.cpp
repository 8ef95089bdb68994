#include "ops/composite/attention.h"

#include <algorithm>
#include <limits>

#include "ir/continuation.h"
#include "ir/document_context.h"
#include "ops/collective/collective.h"
#include "ops/composite/cache_write.h"
#include "ops/composite/dropout.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

// x [B, T, h, D] as [B, H, T, D], each head repeated H / h times.
Value to_heads(Graph& g, Value x, int64_t heads) {
  Value y = transpose(g, x, {0, 2, 1, 3});
  const Shape s = g.shape(y);
  if (s[1] == heads) return y;
  Value repeated = broadcast(g, y, {s[0], s[1], heads / s[1], s[2], s[3]}, {0, 1, 3, 4});
  return reshape(g, repeated, {s[0], heads, s[2], s[3]});
}

// Sum over the query heads of each group: [B, H, T, D] as [B, T, h, D].
Value from_heads(Graph& g, Value x, int64_t heads) {
  const Shape s = g.shape(x);
  if (s[1] != heads) x = reduce_sum(g, reshape(g, x, {s[0], heads, s[1] / heads, s[2], s[3]}), {2});
  return transpose(g, x, {0, 2, 1, 3});
}

// scale * q k^T, minus infinity where the key is hidden: [B, H, queries, keys]. The first query is
// token `start` [B] of the keys' sequence; no value: token 0. `document_starts` where the mask has
// documents.
Value masked_scores(Graph& g, Value q, Value k, double scale, AttentionMask mask, Value start,
                    Value document_starts) {
  DType stat = wide(g.type(q).dtype);
  Value s = dot(g, q, k, 2, 3, 3, stat);
  s = mul(g, s, constant_like(g, s, scale));
  if (!mask.causal) return s;
  const Shape shape = g.shape(s);
  TensorType pairs{{shape[2], shape[3]}, DType::kI32};  // or [B, queries, keys]
  std::vector<int64_t> dims{2, 3};
  if (start || document_starts) {
    pairs.shape.insert(pairs.shape.begin(), shape[0]);
    dims.insert(dims.begin(), 0);
  }
  int64_t last = std::ssize(dims) - 1;
  Value query = iota(g, pairs, last - 1), key = iota(g, pairs, last);
  if (start) query = add(g, query, broadcast(g, start, pairs.shape, {0}));
  Value visible = compare(g, Comparison::kLe, key, query);
  if (mask.window > 0) {
    Value oldest = sub(g, query, constant_like(g, query, static_cast<double>(mask.window - 1)));
    visible = binary(g, BinaryKind::kAnd, visible, compare(g, Comparison::kGe, key, oldest));
  }
  if (document_starts) {
    Value oldest = broadcast(g, document_starts, pairs.shape, {0, 1});
    visible = binary(g, BinaryKind::kAnd, visible, compare(g, Comparison::kGe, key, oldest));
  }
  return select(g, broadcast(g, visible, shape, dims), s,
                constant_like(g, s, -std::numeric_limits<double>::infinity()));
}

// Pairs of query and key that the mask lets through, for one head of one sequence.
double visible_pairs(int64_t t, AttentionMask mask) {
  auto n = static_cast<double>(t);
  if (!mask.causal) return n * n;
  auto w = static_cast<double>(mask.window > 0 ? std::min(mask.window, t) : t);
  return w * (w + 1) / 2 + (n - w) * w;
}

// The bits of p [B, H, T (query), T (key)], whose blocks of 128 hold two keys of 64 queries.
Value dropout_bits(Graph& g, Value p, const AttentionDropout& dropout,
                   std::span<const Value> operands) {
  const Shape s = g.shape(p);
  int64_t B = s[0], H = s[1], T = s[2], pairs = (T + 1) / 2, blocks = (T + 63) / 64;
  Value first_head = dropout.part ? operands[1] : Value{};
  Value bits = random_bits(g, operands[0], first_head, {H, pairs, blocks, kRandomBlock},
                           dropout.stream, dropout.part ? TensorPart{1, H} : TensorPart{});
  bits = transpose(g, reshape(g, bits, {B * H, pairs, blocks, 2, 64}), {0, 2, 4, 1, 3});
  bits = reshape(g, bits, {B, H, blocks * 64, pairs * 2});
  return slice(g, slice(g, bits, 2, 0, T), 3, 0, T);
}

void check_heads(const Op& op, std::span<const TensorType> inputs, AttentionMask mask) {
  const TensorType &q = inputs[0], &k = inputs[1], &v = inputs[2];
  require(q.shape.size() == 4 && k.shape.size() == 4 && is_float(q.dtype), op, "C1",
          "q, k, v must be floats [B, T, H, D]: ", q, ", ", k);
  require(k.shape == v.shape && k.dtype == q.dtype && v.dtype == q.dtype, op, "C2",
          "k and v must be alike: ", k, " and ", v);
  require(k.shape[0] == q.shape[0] && k.shape[1] == q.shape[1] && k.shape[3] == q.shape[3], op,
          "C3", "q and k must have the same batch, tokens and head size: ", q, " and ", k);
  require(k.shape[2] > 0 && q.shape[2] % k.shape[2] == 0, op, "C4",
          "key/value heads must divide query heads: ", k.shape[2], " and ", q.shape[2]);
  require(mask.window >= 0 && (mask.causal || mask.window == 0), op, "C5",
          "a window needs the causal mask");
  require(mask.causal || !mask.documents, op, "C11", "documents need the causal mask");
}

void check_documents(const Op& op, const TensorType& q, AttentionMask mask,
                     std::span<const TensorType> operands) {
  if (!mask.documents) return;
  const TensorType each{{q.shape[0], q.shape[1]}, DType::kI32};
  require(operands[0].shape == each.shape && operands[0].dtype == each.dtype, op, "C12",
          "document_starts must be ", each, ", are ", operands[0]);
}
// The operand, of those behind the first `at`; no value where there is none.
Value documents_of(AttentionMask mask, std::span<const Value> inputs, size_t at) {
  return mask.documents ? inputs[at] : Value{};
}

void check_dropout(const Op& op, const TensorType& q, const AttentionDropout& dropout,
                   std::span<const TensorType> operands) {
  require(dropout.p >= 0 && dropout.p < 1, op, "C8", "dropout must be in [0, 1), is ", dropout.p);
  if (dropout.operands() == 0) return;
  require(operands[0].shape == Shape{q.shape[0]} && operands[0].dtype == DType::kI64, op, "C9",
          "row_keys must be i64 [B]: B = ", q.shape[0], ", they are ", operands[0]);
  if (!dropout.part) return;
  require(operands[1].shape.empty() && operands[1].dtype == DType::kI32, op, "C10",
          "first_head must be an i32 scalar, is ", operands[1]);
}

}  // namespace

std::vector<TensorType> Attention::infer(const InferContext& context) const {
  const TensorType& q = context.inputs[0];
  check_heads(*this, context.inputs, mask_);
  check_documents(*this, q, mask_, context.inputs.subspan(3));
  check_dropout(*this, q, dropout_, context.inputs.subspan(3 + mask_.operands()));
  return {q, {{q.shape[0], q.shape[2], q.shape[1]}, wide(q.dtype)}};
}

void Attention::split(PlacementContext& context) const {
  Placement heads = context.placement(0);
  // A single key/value head serves the query heads of every rank.
  auto fits = [&](size_t i) {
    return context.placement(i).split_on(2) || context.whole_type(i).shape[2] == 1;
  };
  if (!heads.split_on(2) || !fits(1) || !fits(2)) return Op::split(context);
  std::vector<Value> operands{context.operand(0)};
  for (size_t i : {1, 2})
    operands.push_back(context.placement(i).split_on(2) ? context.operand(i) : context.entered(i));
  Graph& g = context.graph();
  OpPtr op = context.node().op;
  const auto further = static_cast<size_t>(3 + mask_.operands());
  if (mask_.documents) operands.push_back(context.replicated(3));
  if (dropout_.p > 0) {
    TESSERA_CHECK(!dropout_.part, "attention is split once");
    op = std::make_shared<Attention>(scale_, mask_,
                                     AttentionDropout{dropout_.p, dropout_.stream, true});
    operands.push_back(context.replicated(further));
    operands.push_back(part_begin(g, heads.axes, g.shape(operands[0])[2]));
  }
  std::vector<Value> outputs = g.add(op, operands);
  context.put(0, outputs[0], heads);
  context.put(1, outputs[1], {Placement::Kind::kSplit, 1, heads.axes});
}

std::vector<Value> Attention::vjp(const VjpContext& context) const {
  TESSERA_CHECK(!context.cotangents[1], "attention: lse is a statistic without a gradient");
  Graph& g = context.graph;
  const Node& n = context.node;
  Value d_o = convert(g, context.cotangents[0], g.type(n.inputs[0]).dtype);
  std::vector<Value> operands{n.inputs[0],  n.inputs[1],  n.inputs[2],
                              n.outputs[0], n.outputs[1], d_o};
  operands.insert(operands.end(), n.inputs.begin() + 3, n.inputs.end());
  std::vector<Value> gradients =
      g.add(std::make_shared<AttentionBackward>(scale_, mask_, dropout_), operands);
  gradients.resize(n.inputs.size());
  return gradients;
}

std::vector<Value> Attention::decompose(Graph& g, std::span<const Value> inputs) const {
  int64_t heads = g.shape(inputs[0])[2];
  DType dtype = g.type(inputs[0]).dtype;
  Value q = to_heads(g, inputs[0], heads), k = to_heads(g, inputs[1], heads),
        v = to_heads(g, inputs[2], heads);
  Value s =
      masked_scores(g, q, k, scale_, mask_, {}, documents_of(mask_, inputs, 3));  // [B, H, T, T]
  const Shape shape = g.shape(s);
  Value m = reduce_max(g, s, {3});
  Value e = unary(g, UnaryKind::kExp, sub(g, s, broadcast_trailing(g, m, shape)));
  Value l = reduce_sum(g, e, {3});
  Value p = div(g, e, broadcast_trailing(g, l, shape));
  if (dropout_.p > 0)
    p = keep_by_bits(g, p, dropout_bits(g, p, dropout_, inputs.subspan(3 + mask_.operands())),
                     dropout_.p);
  p = convert(g, p, dtype);
  Value o = transpose(g, dot(g, p, v, 2, 3, 2, dtype), {0, 2, 1, 3});
  return {o, tessera::add(g, m, unary(g, UnaryKind::kLog, l))};
}

std::vector<Value> Attention::continue_sequence(Continuation& c) const {
  Graph& g = c.graph();
  TESSERA_CHECK(mask_.causal && !mask_.documents && dropout_.p == 0,
                cat("only causal attention of one document without dropout can go on (",
                    c.node().scope, ")"));
  auto kept = [&](const std::string& name, size_t i) {
    TensorType type = g.type(c.operand(i));
    type.shape[0] = c.rows();
    type.shape[1] = c.capacity();
    Value cache = g.add_one(std::make_shared<CacheWrite>(),
                            {c.state(name, type), c.operand(i), c.start(), c.row()});
    c.update(name, cache);
    return cache;
  };
  Value k = kept("keys", 1), v = kept("values", 2);
  auto op = std::make_shared<CachedAttention>(scale_, mask_.window);
  return {g.add_one(op, {c.operand(0), k, v, c.start(), c.row()}), Value{}};
}

std::vector<Value> Attention::restart_at_documents(DocumentContext& c) const {
  TESSERA_CHECK(mask_.causal && !mask_.documents,
                cat("only causal attention has documents, once (", c.node().scope, ")"));
  AttentionMask mask = mask_;
  mask.documents = true;
  std::vector<Value> operands = c.operands();
  operands.insert(operands.begin() + 3, c.starts());
  return c.graph().add(std::make_shared<Attention>(scale_, mask, dropout_), operands);
}

Cost Attention::cost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs) const {
  const Shape& s = inputs[0].shape;
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 4.0 * static_cast<double>(s[0] * s[2] * s[3]) * visible_pairs(s[1], mask_);
  return cost;
}

std::vector<TensorType> AttentionBackward::infer(const InferContext& context) const {
  const TensorType &q = context.inputs[0], &k = context.inputs[1], &v = context.inputs[2];
  check_heads(*this, context.inputs, mask_);
  check_documents(*this, q, mask_, context.inputs.subspan(6));
  check_dropout(*this, q, dropout_, context.inputs.subspan(6 + mask_.operands()));
  require(context.inputs[3] == q && context.inputs[5].shape == q.shape &&
              context.inputs[5].dtype == q.dtype,
          *this, "C6", "o and do must be like q: ", context.inputs[3], " and ", context.inputs[5]);
  require(context.inputs[4].shape == Shape{q.shape[0], q.shape[2], q.shape[1]}, *this, "C7",
          "lse must be [B, H, T], is ", context.inputs[4]);
  return {q, k, v};
}

std::vector<Value> AttentionBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  int64_t heads = g.shape(inputs[0])[2], kv_heads = g.shape(inputs[1])[2];
  DType dtype = g.type(inputs[0]).dtype, stat = wide(dtype);
  Value q = to_heads(g, inputs[0], heads), k = to_heads(g, inputs[1], heads),
        v = to_heads(g, inputs[2], heads);
  Value o = to_heads(g, inputs[3], heads), lse = inputs[4], d_o = to_heads(g, inputs[5], heads);
  Value s = masked_scores(g, q, k, scale_, mask_, {}, documents_of(mask_, inputs, 6));
  const Shape shape = g.shape(s);
  Value p = unary(g, UnaryKind::kExp, sub(g, s, broadcast_trailing(g, lse, shape)));
  Value delta = reduce_sum(g, mul(g, convert(g, o, stat), convert(g, d_o, stat)), {3});
  Value dp = dot(g, d_o, v, 2, 3, 3, stat), kept = p;
  if (dropout_.p > 0) {
    Value bits = dropout_bits(g, p, dropout_, inputs.subspan(6 + mask_.operands()));
    dp = keep_by_bits(g, dp, bits, dropout_.p);
    kept = keep_by_bits(g, p, bits, dropout_.p);
  }
  Value ds = mul(g, p, sub(g, dp, broadcast_trailing(g, delta, shape)));
  ds = convert(g, mul(g, ds, constant_like(g, ds, scale_)), dtype);
  Value dq = dot(g, ds, k, 2, 3, 2, dtype);
  // The sum over a group of query heads is taken in f32 and rounded once.
  Value dk = dot(g, ds, q, 2, 2, 2, stat), dv = dot(g, convert(g, kept, dtype), d_o, 2, 2, 2, stat);
  return {transpose(g, dq, {0, 2, 1, 3}), convert(g, from_heads(g, dk, kv_heads), dtype),
          convert(g, from_heads(g, dv, kv_heads), dtype)};
}

Cost AttentionBackward::cost(std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs) const {
  const Shape& s = inputs[0].shape;
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 10.0 * static_cast<double>(s[0] * s[2] * s[3]) * visible_pairs(s[1], mask_);
  return cost;
}

std::vector<TensorType> CachedAttention::infer(const InferContext& context) const {
  const TensorType &q = context.inputs[0], &k = context.inputs[1], &v = context.inputs[2],
                   &start = context.inputs[3], &row = context.inputs[4];
  // All rules of attention but for rows and length.
  std::vector<TensorType> alike(context.inputs.begin(), context.inputs.begin() + 3);
  for (TensorType& t : alike) {
    if (t.shape.size() != 4 || q.shape.size() != 4) continue;
    t.shape[0] = q.shape[0];
    t.shape[1] = q.shape[1];
  }
  check_heads(*this, alike, {true, window_});
  require(k.shape == v.shape, *this, "C6", "the caches must be alike: ", k, " and ", v);
  require(k.shape[1] >= q.shape[1], *this, "C7", "the caches must hold the queries' tokens: ", k,
          " and ", q);
  const TensorType each{{q.shape[0]}, DType::kI32};
  require(start == each && row == each, *this, "C8", "start and row must be ", each, ", are ",
          start, " and ", row);
  return {q};
}

std::vector<Value> CachedAttention::decompose(Graph& g, std::span<const Value> inputs) const {
  int64_t heads = g.shape(inputs[0])[2];
  auto of_row = [&](Value cache) {  // [B, H, C, D]
    return to_heads(g, g.add_one(std::make_shared<Gather>(), {cache, inputs[4]}), heads);
  };
  Value q = to_heads(g, inputs[0], heads), k = of_row(inputs[1]), v = of_row(inputs[2]);
  Value s = masked_scores(g, q, k, scale_, {true, window_}, inputs[3], {});  // [B, H, n, C]
  const Shape shape = g.shape(s);
  DType dtype = g.type(v).dtype;
  Value m = reduce_max(g, s, {3});
  Value e = unary(g, UnaryKind::kExp, sub(g, s, broadcast_trailing(g, m, shape)));
  Value l = reduce_sum(g, e, {3});
  Value p = convert(g, div(g, e, broadcast_trailing(g, l, shape)), dtype);
  return {transpose(g, dot(g, p, v, 2, 3, 2, dtype), {0, 2, 1, 3})};
}

Cost CachedAttention::cost(std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs) const {
  const Shape& s = inputs[0].shape;
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 4.0 * static_cast<double>(num_elements(s)) * static_cast<double>(inputs[1].shape[1]);
  return cost;
}

Value attention(Graph& graph, Value q, Value k, Value v, double scale, AttentionMask mask) {
  return graph.add(std::make_shared<Attention>(scale, mask), {q, k, v})[0];
}

Value attention(Graph& graph, Value q, Value k, Value v, double scale, AttentionMask mask,
                Value row_keys, double p, std::string stream) {
  if (p == 0) return attention(graph, q, k, v, scale, mask);
  AttentionDropout dropout{p, std::move(stream)};
  return graph.add(std::make_shared<Attention>(scale, mask, std::move(dropout)),
                   {q, k, v, row_keys})[0];
}

}  // namespace tessera
