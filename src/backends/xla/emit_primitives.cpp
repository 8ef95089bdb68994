#include <array>
#include <map>
#include <string_view>

#include "backends/xla/emitter.h"
#include "ops/move/flat_unit.h"
#include "ops/move/unstack.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera::xla {

bool Emitter::emit_elementwise(const Node& node) {
  // Ours, StableHLO's.
  static const std::map<std::string_view, std::string_view> kSame{{"neg", "negate"},
                                                                  {"exp", "exponential"},
                                                                  {"log", "log"},
                                                                  {"sqrt", "sqrt"},
                                                                  {"rsqrt", "rsqrt"},
                                                                  {"tanh", "tanh"},
                                                                  {"logistic", "logistic"},
                                                                  {"sin", "sine"},
                                                                  {"cos", "cosine"},
                                                                  {"abs", "abs"},
                                                                  {"is_finite", "is_finite"},
                                                                  {"not", "not"},
                                                                  {"add", "add"},
                                                                  {"sub", "subtract"},
                                                                  {"mul", "multiply"},
                                                                  {"div", "divide"},
                                                                  {"max", "maximum"},
                                                                  {"min", "minimum"},
                                                                  {"pow", "power"},
                                                                  {"and", "and"},
                                                                  {"or", "or"},
                                                                  {"select", "select"},
                                                                  {"convert", "convert"}};
  const std::string_view name = node.op->name();
  const Value y = node.outputs[0];
  const TensorType& type = graph_.type(y);
  if (auto same = kSame.find(name); same != kSame.end()) {
    set(y, text_.op(same->second, all_in(node), type.shape, element_of(type.dtype)));
  } else if (name == "erf") {
    if (type.dtype == DType::kF64)
      throw UserError(cat("XLA does not run 'erf' in f64 (", node.scope, ")"));
    set(y, text_.convert(erf(text_.convert(in(node, 0), "f32")), element_of(type.dtype)));
  } else if (name == "compare") {
    constexpr std::array<std::string_view, 6> kDirections{"EQ", "NE", "LT", "LE", "GT", "GE"};
    const Comparison comparison = static_cast<const Compare&>(*node.op).comparison();
    set(y, text_.compare(kDirections[static_cast<size_t>(comparison)], in(node, 0), in(node, 1)));
  } else if (name == "stop_gradient" || name == "vary" || name == "as_replicated") {
    set(y, in(node, 0));
  } else {
    return false;
  }
  return true;
}

// Abramowitz and Stegun, 7.1.26, as every backend computes it.
Tensor Emitter::erf(const Tensor& x) {
  auto number = [&](double v) { return text_.splat(x.shape, DType::kF32, v); };
  auto mul = [&](const Tensor& a, const Tensor& b) { return text_.binary("multiply", a, b); };
  auto add = [&](const Tensor& a, const Tensor& b) { return text_.binary("add", a, b); };
  const Tensor a = text_.unary("abs", x);
  const Tensor t = text_.binary("divide", number(1), add(number(1), mul(number(0.3275911), a)));
  Tensor p = number(1.061405429);
  for (double k : {-1.453152027, 1.421413741, -0.284496736, 0.254829592})
    p = add(mul(p, t), number(k));
  const Tensor decay = text_.unary("exponential", text_.unary("negate", mul(a, a)));
  const Tensor y = text_.binary("subtract", number(1), mul(mul(p, t), decay));
  return mul(text_.unary("sign", x), y);
}

bool Emitter::emit_shaping(const Node& node) {
  const Op& op = *node.op;
  const std::string_view name = op.name();
  const Value y = node.outputs[0];
  const TensorType& type = graph_.type(y);
  if (name == "constant") {
    set(y, text_.splat(type.shape, type.dtype, static_cast<const Constant&>(op).value()));
  } else if (name == "table") {
    set(y, text_.values(type.dtype, static_cast<const Table&>(op).values()));
  } else if (name == "iota") {
    set(y, text_.iota(type.shape, element_of(type.dtype), static_cast<const Iota&>(op).dim()));
  } else if (name == "random_bits") {
    set(y, random_bits(node));
  } else if (name == "reshape") {
    set(y, text_.reshape(in(node, 0), type.shape));
  } else if (name == "transpose") {
    set(y, text_.transpose(in(node, 0), static_cast<const Transpose&>(op).order()));
  } else if (name == "broadcast") {
    set(y, text_.broadcast(in(node, 0), type.shape, static_cast<const Broadcast&>(op).dims()));
  } else if (name == "slice") {
    const auto& slice = static_cast<const Slice&>(op);
    set(y, text_.slice(in(node, 0), slice.dim(), slice.begin(), slice.end()));
  } else if (name == "pad") {
    const auto& pad = static_cast<const Pad&>(op);
    set(y, text_.pad(in(node, 0), pad.dim(), pad.low(), type.shape[static_cast<size_t>(pad.dim())],
                     text_.splat({}, type.dtype, pad.value())));
  } else if (name == "concatenate") {
    set(y, text_.concatenate(all_in(node), static_cast<const Concatenate&>(op).dim()));
  } else if (name == "gather") {
    set(y, gather(node));
  } else if (name == "scatter_add") {
    set(y, scatter_add(node));
  } else {
    return false;
  }
  return true;
}

Tensor Emitter::gather(const Node& node) {
  const Tensor table = in(node, 0), ids = in(node, 1);
  const auto ids_dims = std::ssize(ids.shape);
  Shape sizes = table.shape, row_dims;
  sizes[0] = 1;
  for (int64_t d = 1; d < std::ssize(table.shape); ++d) row_dims.push_back(ids_dims + d - 1);
  return text_.op(
      "gather", {{table, ids}}, type_of_output(node).shape, table.element,
      cat("dimension_numbers = #stablehlo.gather<offset_dims = ", list_text(row_dims),
          ", collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = ", ids_dims,
          ">, slice_sizes = ", array_text(sizes), ", indices_are_sorted = false"));
}

Tensor Emitter::scatter_add(const Node& node) {
  const TensorType& type = type_of_output(node);
  const Tensor ids = in(node, 0), updates = in(node, 1);
  const std::string element = element_of(type.dtype), sum = wide(element);
  Shape row_dims;
  for (int64_t d = std::ssize(ids.shape); d < std::ssize(updates.shape); ++d) row_dims.push_back(d);
  const Tensor zero = text_.convert(text_.splat(type.shape, type.dtype, 0), sum);
  const Tensor y = text_.op(
      "scatter", {{zero, ids, text_.convert(updates, sum)}}, type.shape, sum,
      cat("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ",
          list_text(row_dims),
          ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = ",
          ids.shape.size(), ">, indices_are_sorted = false, unique_indices = false"),
      MlirText::reducer("add", sum));
  return text_.convert(y, element);
}

bool Emitter::emit_reduction(const Node& node) {
  const std::string_view name = node.op->name();
  const Value y = node.outputs[0];
  const TensorType& type = graph_.type(y);
  if (name == "reduce_sum") {
    // XLA would round to the element type after every addition.
    const Tensor x = in(node, 0);
    const Tensor sum =
        text_.sum(text_.convert(x, wide(x.element)), static_cast<const Reduce&>(*node.op).dims());
    set(y, text_.convert(sum, element_of(type.dtype)));
  } else if (name == "reduce_max") {
    set(y, text_.maximum(in(node, 0), static_cast<const Reduce&>(*node.op).dims()));
  } else if (name == "dot") {
    const auto& dot = static_cast<const Dot&>(*node.op);
    // Sums in f64 are asked for by the dtype of the result.
    auto operand = [&](size_t i) {
      return type.dtype == DType::kF64 ? text_.convert(in(node, i), "f64") : in(node, i);
    };
    set(y, text_.dot(operand(0), operand(1), dot.batch(), Shape{dot.contract_a()},
                     Shape{dot.contract_b()}, element_of(type.dtype)));
  } else {
    return false;
  }
  return true;
}

// Views and placements are slices and concatenations.
bool Emitter::emit_storage(const Node& node) {
  const std::string_view name = node.op->name();
  auto part = [&](const Tensor& flat, int64_t offset, const Shape& shape) {
    return text_.reshape(text_.slice(flat, 0, offset, offset + num_elements(shape)), shape);
  };
  if (name == "unflatten") {
    const Tensor x = in(node, 0);
    const auto& members = static_cast<const Unflatten&>(*node.op).members();
    for (size_t k = 0; k < members.size(); ++k)
      set(node.outputs[k], part(x, members[k].offset, members[k].shape));
  } else if (name == "unstack") {
    const Tensor x = in(node, 0);
    const Tensor flat = text_.reshape(x, {num_elements(x.shape)});
    const Shape& shape = type_of_output(node).shape;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      set(node.outputs[k], part(flat, static_cast<int64_t>(k) * num_elements(shape), shape));
  } else if (name == "flatten") {
    const auto& flatten = static_cast<const Flatten&>(*node.op);
    const DType dtype = type_of_output(node).dtype;
    std::map<int64_t, size_t> by_offset;
    for (size_t i = 0; i < node.inputs.size(); ++i) by_offset[flatten.offsets()[i]] = i;
    std::vector<Tensor> parts;
    int64_t end = 0;
    auto fill_to = [&](int64_t offset) {
      if (offset > end) parts.push_back(text_.splat({offset - end}, dtype, 0));
      end = offset;
    };
    for (auto [offset, i] : by_offset) {
      fill_to(offset);
      const Tensor x = in(node, i);
      parts.push_back(text_.reshape(x, {num_elements(x.shape)}));
      end += num_elements(x.shape);
    }
    fill_to(flatten.size());
    set(node.outputs[0], text_.concatenate(parts, 0));
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::xla
