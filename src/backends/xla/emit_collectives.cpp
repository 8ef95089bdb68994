#include "backends/xla/emitter.h"

namespace tessera::xla {

bool Emitter::emit_collective(const Node& node) {
  const std::string_view name = node.op->name();
  const Value y = node.outputs[0];
  if (name == "all_reduce") {
    set(y, all_reduce(node));
    return true;
  }
  if (name == "axis_index") {
    set(y, axis_index(static_cast<const AxisIndex&>(*node.op).axes()));
    return true;
  }
  const auto* collective = dynamic_cast<const Collective*>(node.op.get());
  if (!collective) return false;
  const AxisSet axes = collective->axes();
  const int64_t dim = collective->dim();
  const TensorType& type = graph_.type(y);
  switch (collective->kind()) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGatherReplicated:
      set(y, text_.op("all_gather", {{in(node, 0)}}, type.shape, element_of(type.dtype),
                      cat("all_gather_dim = ", number_text(dim), ", ", groups(axes))));
      break;
    case CollectiveKind::kReduceScatter: set(y, reduce_scatter(node)); break;
    case CollectiveKind::kLocalSlice: {
      const int64_t size = type.shape[static_cast<size_t>(dim)];
      const Tensor part = text_.splat({}, "i32", static_cast<uint64_t>(size));
      set(y,
          text_.slice_at(in(node, 0), dim, text_.binary("multiply", axis_index(axes), part), size));
      break;
    }
    case CollectiveKind::kAllToAll:
      set(y, all_to_all(in(node, 0), dim, collective->concat_dim(), axes));
      break;
  }
  return true;
}

// Ranks of a job are replicas.
std::string Emitter::groups(AxisSet axes) const {
  const auto groups = graph_.mesh().groups(axes);
  std::vector<std::string> parts;
  for (const std::vector<int>& group : groups) parts.push_back(cat("[", join(group, ", "), "]"));
  return cat("replica_groups = dense<[", join(parts, ", "), "]> : tensor<", groups.size(), "x",
             groups[0].size(), "xi64>");
}

Tensor Emitter::axis_index(AxisSet axes) {
  std::vector<int64_t> index_of;  // by rank
  for (int rank = 0; rank < graph_.mesh().world_size(); ++rank)
    index_of.push_back(graph_.mesh().index(rank, axes));
  const Tensor rank = text_.op("replica_id", {}, {}, "ui32");
  return text_.reshape(text_.slice_at(text_.values("i32", index_of), 0, rank, 1), {});
}

Tensor Emitter::all_reduce(const Node& node) {
  const auto& op = static_cast<const AllReduceOp&>(*node.op);
  const Tensor x = in(node, 0);
  const bool is_sum = op.reduction() == Reduction::kSum;
  const std::string element = is_sum ? wide(x.element) : x.element;
  const Tensor y =
      text_.op("all_reduce", {{text_.convert(x, element)}}, x.shape, element, groups(op.axes()),
               MlirText::reducer(is_sum ? "add" : "maximum", element));
  return text_.convert(y, x.element);
}

Tensor Emitter::all_to_all(const Tensor& x, int64_t split_dim, int64_t concat_dim, AxisSet axes) {
  const int64_t ranks = graph_.mesh().size(axes);
  Shape shape = x.shape;
  shape[static_cast<size_t>(split_dim)] /= ranks;
  shape[static_cast<size_t>(concat_dim)] *= ranks;
  return text_.op("all_to_all", {{x}}, shape, x.element,
                  cat("split_dimension = ", number_text(split_dim),
                      ", concat_dimension = ", number_text(concat_dim),
                      ", split_count = ", number_text(ranks), ", ", groups(axes)));
}

// XLA would sum in its own order, and in the element type. Parts that travel as they are and are
// summed in rank order in f32 give our bits, and bf16 stays bf16 on the wire.
Tensor Emitter::reduce_scatter(const Node& node) {
  const auto& op = static_cast<const Collective&>(*node.op);
  const TensorType& type = type_of_output(node);
  const int64_t ranks = graph_.mesh().size(op.axes()), dim = op.dim();
  const Tensor x = in(node, 0);
  Shape parts = x.shape;
  parts[static_cast<size_t>(dim)] /= ranks;
  parts.insert(parts.begin() + dim, ranks);
  const Tensor exchanged = all_to_all(text_.reshape(x, parts), dim, dim, op.axes());
  Tensor sum;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Tensor part = text_.convert(text_.slice(exchanged, dim, rank, rank + 1), wide(x.element));
    sum = rank == 0 ? part : text_.binary("add", sum, part);
  }
  return text_.convert(text_.reshape(sum, type.shape), element_of(type.dtype));
}

}  // namespace tessera::xla
