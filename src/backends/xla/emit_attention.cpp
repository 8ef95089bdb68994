#include <limits>

#include "backends/xla/attention_blocks.h"
#include "backends/xla/emitter.h"

namespace tessera::xla {

// Operands of mask and dropout are behind the first `at`.
AttentionBlocks Emitter::attention_blocks(const Node& node, size_t at, double scale,
                                          const AttentionMask& mask,
                                          const AttentionDropout& dropout) {
  constexpr int64_t kQueries = 64;  // that a block of dropout's bits has, and two keys
  int64_t size = options_.attention_tokens;
  if (dropout.p > 0) size = (size + kQueries - 1) / kQueries * kQueries;
  const TensorType& q = graph_.type(node.inputs[0]);
  AttentionBlocks blocks(text_, q, graph_.type(node.inputs[1]), size, scale, mask);
  if (mask.documents) blocks.set_documents(in(node, at++));
  if (dropout.p == 0) return blocks;

  const Tensor row_keys = in(node, at);
  std::optional<Tensor> first_head;
  if (dropout.part) first_head = in(node, at + 1);
  const int64_t batch = q.shape[0], tokens = q.shape[1], heads = q.shape[2];
  blocks.set_dropout(
      dropout.p, [=, this, stream = dropout.stream](const Tensor& i, const Tensor& j) {
        auto times = [&](const Tensor& block, int64_t n) {
          return text_.binary("multiply", block, text_.splat({}, "i32", static_cast<uint64_t>(n)));
        };
        RandomPart part{{batch, heads, size / 2, size / kQueries, 2 * kQueries},
                        {batch, heads, (tokens + 1) / 2, (tokens - 1) / kQueries + 1, 2 * kQueries},
                        {{2, times(j, size / 2)}, {3, times(i, size / kQueries)}}};
        if (first_head) part.begins[1] = *first_head;
        const Tensor bits = text_.reshape(random_bits(row_keys, stream, part),
                                          {batch * heads, size / 2, size / kQueries, 2, kQueries});
        return text_.transpose(bits, Shape{0, 2, 4, 1, 3});
      });
  return blocks;
}

// Block of queries by block of queries, each over the blocks of keys that it sees: sums of
// exponentials and of their products with v are kept relative to the largest score so far
// (Dao 2023, algorithm 1).
void Emitter::attention(const Node& node) {
  const auto& op = static_cast<const Attention&>(*node.op);
  const AttentionBlocks blocks = attention_blocks(node, 3, op.scale(), op.mask(), op.dropout());
  const Tensor q = blocks.queries(in(node, 0)), k = blocks.keys(in(node, 1)),
               v = blocks.keys(in(node, 2));
  auto add = [&](const Tensor& a, const Tensor& b) { return text_.binary("add", a, b); };
  auto sub = [&](const Tensor& a, const Tensor& b) { return text_.binary("subtract", a, b); };
  auto mul = [&](const Tensor& a, const Tensor& b) { return text_.binary("multiply", a, b); };
  auto exp = [&](const Tensor& x) { return text_.unary("exponential", x); };
  const Shape sums = blocks.block_of(blocks.of_queries(), 3),
              rows = blocks.block_of(blocks.of_rows(), 3);

  const std::vector<Tensor> results{text_.splat(blocks.of_queries(), type_of_output(node).dtype, 0),
                                    blocks.filled(blocks.of_rows(), 0)};
  auto of_queries = [&](const Tensor& i, std::span<const Tensor> made) {
    const Tensor q_i = blocks.block(q, 3, i);
    const auto [first, end] = blocks.visible(i);
    // The least number, not infinity: differences of two of those are none.
    const std::vector<Tensor> nothing{blocks.filled(rows, -std::numeric_limits<float>::max()),
                                      blocks.filled(rows, 0), blocks.filled(sums, 0)};
    auto of_keys = [&](const Tensor& j, std::span<const Tensor> so_far) {
      const Tensor s = blocks.scores(q_i, blocks.block(k, 2, j), i, j);
      const Tensor m = text_.binary("maximum", so_far[0], text_.maximum(s, Shape{4}));
      const Tensor fade = exp(sub(so_far[0], m)), e = exp(sub(s, blocks.spread(m, s.shape)));
      const Tensor p = blocks.narrowed(blocks.dropper(i, j)(e));
      return std::vector<Tensor>{m, add(mul(so_far[1], fade), text_.sum(e, Shape{4})),
                                 add(mul(so_far[2], blocks.spread(fade, sums)),
                                     blocks.dot(p, blocks.block(v, 2, j), {4}, {2}))};
    };
    const std::vector<Tensor> all = text_.loop(first, end, nothing, of_keys);
    const Tensor o = text_.binary("divide", all[2], blocks.spread(all[1], sums));
    return std::vector<Tensor>{blocks.put(made[0], blocks.narrowed(o), 3, i),
                               blocks.put(made[1], add(all[0], text_.unary("log", all[1])), 3, i)};
  };
  const std::vector<Tensor> all = text_.loop(blocks.count(), results, of_queries);
  set(node.outputs[0], blocks.from_queries(all[0]));
  set(node.outputs[1], blocks.from_rows(all[1]));
}

// The same order: dq is whole after the keys of its queries, dk and dv after all.
void Emitter::attention_backward(const Node& node) {
  const auto& op = static_cast<const AttentionBackward&>(*node.op);
  const AttentionBlocks blocks = attention_blocks(node, 6, op.scale(), op.mask(), op.dropout());
  const Tensor q = blocks.queries(in(node, 0)), k = blocks.keys(in(node, 1)),
               v = blocks.keys(in(node, 2)), o = blocks.queries(in(node, 3)),
               d_o = blocks.queries(in(node, 5));
  // Probabilities of queries that were added are 0.
  const Tensor lse = blocks.rows(in(node, 4), std::numeric_limits<double>::infinity());
  auto add = [&](const Tensor& a, const Tensor& b) { return text_.binary("add", a, b); };
  auto sub = [&](const Tensor& a, const Tensor& b) { return text_.binary("subtract", a, b); };
  auto mul = [&](const Tensor& a, const Tensor& b) { return text_.binary("multiply", a, b); };
  const Tensor delta = text_.sum(mul(blocks.widened(o), blocks.widened(d_o)), Shape{4});

  const std::vector<Tensor> results{text_.splat(blocks.of_queries(), type_of_output(node).dtype, 0),
                                    blocks.filled(blocks.of_keys(), 0),
                                    blocks.filled(blocks.of_keys(), 0)};
  auto of_queries = [&](const Tensor& i, std::span<const Tensor> made) {
    const Tensor q_i = blocks.block(q, 3, i), d_o_i = blocks.block(d_o, 3, i),
                 lse_i = blocks.block(lse, 3, i), delta_i = blocks.block(delta, 3, i);
    const auto [first, end] = blocks.visible(i);
    const std::vector<Tensor> before{blocks.filled(q_i.shape, 0), made[1], made[2]};
    auto of_keys = [&](const Tensor& j, std::span<const Tensor> so_far) {
      const Tensor k_j = blocks.block(k, 2, j), v_j = blocks.block(v, 2, j);
      const Tensor s = blocks.scores(q_i, k_j, i, j);
      const Tensor p = text_.unary("exponential", sub(s, blocks.spread(lse_i, s.shape)));
      const auto drop = blocks.dropper(i, j);
      const Tensor dp = drop(blocks.dot(d_o_i, v_j, {4}, {3}));
      const Tensor ds = mul(p, sub(dp, blocks.spread(delta_i, s.shape)));
      const Tensor ds_scaled = blocks.narrowed(mul(ds, blocks.filled(s.shape, op.scale())));
      auto plus = [&](const Tensor& sum, const Tensor& of_block) {
        return blocks.put(sum, add(blocks.block(sum, 2, j), of_block), 2, j);
      };
      return std::vector<Tensor>{
          add(so_far[0], blocks.dot(ds_scaled, k_j, {4}, {2})),
          plus(so_far[1], blocks.dot(ds_scaled, q_i, {2, 3}, {2, 3})),
          plus(so_far[2], blocks.dot(blocks.narrowed(drop(p)), d_o_i, {2, 3}, {2, 3}))};
    };
    const std::vector<Tensor> all = text_.loop(first, end, before, of_keys);
    return std::vector<Tensor>{blocks.put(made[0], blocks.narrowed(all[0]), 3, i), all[1], all[2]};
  };
  const std::vector<Tensor> all = text_.loop(blocks.count(), results, of_queries);
  set(node.outputs[0], blocks.from_queries(all[0]));
  set(node.outputs[1], blocks.from_keys(blocks.narrowed(all[1])));
  set(node.outputs[2], blocks.from_keys(blocks.narrowed(all[2])));
}

}  // namespace tessera::xla
