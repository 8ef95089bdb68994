#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "backends/xla/emitter.h"
#include "base/ignore_index.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/vocabulary_parallel.h"

namespace tessera::xla {

// Composites whose definition would take memory of another order.
bool Emitter::emit_composite(const Node& node) {
  using Write = void (Emitter::*)(const Node&);
  static const std::map<std::string_view, Write> kWriters{
      {"adamw", &Emitter::adamw},
      {"lion", &Emitter::lion},
      {"sgd", &Emitter::sgd},
      {"sum_squares", &Emitter::sum_squares},
      {"cache_write", &Emitter::cache_write},
      {"attention", &Emitter::attention},
      {"attention_backward", &Emitter::attention_backward},
      {"linear_cross_entropy", &Emitter::head},
      {"linear_cross_entropy_backward", &Emitter::head},
      {"linear_cross_entropy_backward_add", &Emitter::head},
      {"linear_log_sum_exp", &Emitter::head},
      {"linear_log_sum_exp_backward", &Emitter::head},
      {"linear_log_sum_exp_backward_add", &Emitter::head}};
  auto writer = kWriters.find(node.op->name());
  if (writer == kWriters.end()) return false;
  (this->*writer->second)(node);
  return true;
}

namespace {

// Of a flat tensor: sums of blocks, then of blocks of those, since a sum in f32 loses digits as it
// grows.
Tensor sum_squares_of(MlirText& text, const Tensor& x, const std::string& element) {
  constexpr int64_t kBlock = 1024;
  const Tensor wide = text.convert(x, element);
  Tensor sums = text.binary("multiply", wide, wide);
  while (sums.shape[0] > kBlock) {
    const int64_t size = sums.shape[0], blocks = size / kBlock;
    const Tensor whole = text.slice(sums, 0, 0, blocks * kBlock);
    std::vector<Tensor> parts{text.sum(text.reshape(whole, {blocks, kBlock}), Shape{1})};
    if (size % kBlock != 0) {
      const Tensor rest = text.slice(sums, 0, blocks * kBlock, size);
      parts.push_back(text.reshape(text.sum(rest, Shape{0}), {1}));
    }
    sums = text.concatenate(parts, 0);
  }
  return text.sum(sums, Shape{0});
}

}  // namespace

// In parts: XLA's CPU holds all squares before it adds them.
void Emitter::sum_squares(const Node& node) {
  const Tensor x = in(node, 0);
  const TensorType& type = type_of_output(node);
  const std::string element = element_of(type.dtype);
  const int64_t size = num_elements(x.shape), part = options_.sum_elements, count = size / part;
  const Tensor flat = text_.reshape(x, {size});
  if (count == 0) return set(node.outputs[0], sum_squares_of(text_, flat, element));
  const Tensor zero = text_.splat({}, type.dtype, 0);
  Tensor sum = text_.loop(count, {{zero}}, [&](const Tensor& turn, std::span<const Tensor> sums) {
    const Tensor begin = text_.binary("multiply", text_.convert(turn, "i64"),
                                      text_.splat({}, "i64", static_cast<uint64_t>(part)));
    const Tensor of_part = sum_squares_of(text_, text_.slice_at(flat, 0, begin, part), element);
    return std::vector<Tensor>{text_.binary("add", sums[0], of_part)};
  })[0];
  if (size % part != 0) {
    const Tensor rest = text_.slice(flat, 0, count * part, size);
    sum = text_.binary("add", sum, sum_squares_of(text_, rest, element));
  }
  set(node.outputs[0], sum);
}

// A scatter of the tokens; the definition selects among all of the cache.
void Emitter::cache_write(const Node& node) {
  const Tensor cache = in(node, 0), x = in(node, 1), start = in(node, 2), row = in(node, 3);
  const Shape column{x.shape[0], 1};
  const Tensor places = text_.concatenate(
      std::vector<Tensor>{text_.reshape(row, column), text_.reshape(start, column)}, 1);
  Shape window;
  for (int64_t d = 1; d < std::ssize(x.shape); ++d) window.push_back(d);
  set(node.outputs[0],
      text_.op("scatter", {{cache, places, x}}, cache.shape, cache.element,
               cat("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ",
                   list_text(window),
                   ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1], "
                   "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true"),
               MlirText::replacer(cache.element)));
}

// A loop over parts of the rows, each the definition on those rows. The op's first outputs are of
// rows, the others sums over them; that of dw begins with what the op adds to.
void Emitter::head(const Node& node) {
  HeadGradients wanted{false, false};
  OpPtr op = node.op;
  if (const auto* gradient = dynamic_cast<const LinearCrossEntropyBackward*>(op.get())) {
    wanted = gradient->gradients();
    op = std::make_shared<LinearCrossEntropyBackward>(HeadGradients{wanted.dx, wanted.dw});
  } else if (const auto* of_part = dynamic_cast<const LinearLogSumExpBackward*>(op.get())) {
    wanted = of_part->gradients();
    op = std::make_shared<LinearLogSumExpBackward>(HeadGradients{wanted.dx, wanted.dw});
  }
  const size_t outputs_of_rows = op->name() == "linear_log_sum_exp" ? 2 : wanted.dx;
  const int64_t all_rows = graph_.shape(node.inputs[0])[0];
  const int64_t logits = all_rows * graph_.shape(node.inputs[1])[0];
  const int64_t least = std::min(all_rows, (logits - 1) / options_.head_logits + 1);
  // Parts without a remainder, if there are some that are at least half as large.
  int64_t rows = (all_rows - 1) / least + 1;
  for (int64_t n = least; n <= 2 * least; ++n)
    if (all_rows % n == 0) {
      rows = all_rows / n;
      break;
    }
  const int64_t count = (all_rows - 1) / rows + 1;

  // Rows that are added have no target, and cotangents of 0.
  std::vector<Tensor> inputs = all_in(node);
  Tensor sum_of_dw;
  if (wanted.adds) {
    sum_of_dw = inputs.back();
    inputs.pop_back();
  }
  std::vector<bool> of_rows;
  Graph part(graph_.mesh());
  std::vector<Value> part_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorType type = graph_.type(node.inputs[i]);
    of_rows.push_back(i != 1 && !type.shape.empty());
    if (of_rows[i]) {
      const double added = type.dtype == DType::kI32 ? kIgnoreIndex : 0;
      if (rows * count != all_rows)
        inputs[i] = text_.pad(inputs[i], 0, 0, rows * count, text_.splat({}, type.dtype, added));
      type.shape[0] = rows;
    }
    part_inputs.push_back(part.input(cat("x", i), InputKind::kArgument, type));
  }
  for (Value v : part.add(op, part_inputs)) part.output("y", v);
  const Graph definition =
      with_definitions(part, {.head_logits = std::numeric_limits<int64_t>::max()});

  std::vector<Tensor> results;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    TensorType type = graph_.type(node.outputs[k]);
    if (k < outputs_of_rows) type.shape[0] = rows * count;
    const bool adds = wanted.adds && wanted.is_dw(static_cast<int>(k));
    results.push_back(adds ? sum_of_dw : text_.splat(type.shape, type.dtype, 0));
  }
  results = text_.loop(count, results, [&](const Tensor& turn, std::span<const Tensor> so_far) {
    const Tensor begin =
        text_.binary("multiply", turn, text_.splat({}, turn.element, static_cast<uint64_t>(rows)));
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < inputs.size(); ++i)
      arguments.push_back(of_rows[i] ? text_.slice_at(inputs[i], 0, begin, rows) : inputs[i]);
    std::vector<Tensor> made = inlined(definition, arguments);
    for (size_t k = 0; k < made.size(); ++k)
      made[k] = k < outputs_of_rows ? text_.update_at(so_far[k], made[k], 0, begin)
                                    : text_.binary("add", so_far[k], made[k]);
    return made;
  });
  for (size_t k = 0; k < results.size(); ++k)
    set(node.outputs[k], k < outputs_of_rows && rows * count != all_rows
                             ? text_.slice(results[k], 0, 0, all_rows)
                             : results[k]);
}

}  // namespace tessera::xla
