#include "ops/collective/collective.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::string_view Collective::name() const {
  static constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "gather_replicated",
                                                "local_slice", "all_to_all"};
  return kNames[static_cast<int>(kind_)];
}

std::optional<Communication> Collective::communication() const {
  switch (kind_) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGatherReplicated: return Communication{Traffic::kGather, axes_};
    case CollectiveKind::kReduceScatter: return Communication{Traffic::kReduceScatter, axes_};
    case CollectiveKind::kAllToAll: return Communication{Traffic::kAllToAll, axes_};
    case CollectiveKind::kLocalSlice: return std::nullopt;
  }
  return std::nullopt;
}

std::vector<TensorType> Collective::infer(const InferContext& context) const {
  TensorType x = context.inputs[0];
  const Mesh& mesh = context.mesh;
  bool wants_replicated = kind_ == CollectiveKind::kLocalSlice;
  require(wants_replicated ? !x.varying.overlaps(axes_) : x.varying.contains(axes_), *this, "C1",
          "the operand must be ", wants_replicated ? "replicated" : "varying", " over ",
          mesh.to_string(axes_), ": it is ", to_string(x, &mesh));
  auto dims = static_cast<int64_t>(x.shape.size());
  require(dim_ >= 0 && dim_ < dims && concat_dim_ >= 0 && concat_dim_ < dims, *this, "C2", "dim ",
          dim_, " of ", x);
  int64_t n = mesh.size(axes_);
  int64_t& size = x.shape[static_cast<size_t>(dim_)];
  if (kind_ == CollectiveKind::kAllGather || kind_ == CollectiveKind::kGatherReplicated) {
    size *= n;
  } else {
    require(size % n == 0, *this, "C3", "dim ", dim_, " of ", x, " is not divisible by ", n,
            " ranks");
    size /= n;
  }
  if (kind_ == CollectiveKind::kAllToAll) x.shape[static_cast<size_t>(concat_dim_)] *= n;
  if (kind_ == CollectiveKind::kReduceScatter) x.dtype = sum_dtype_;
  if (kind_ == CollectiveKind::kGatherReplicated) x.varying = x.varying - axes_;
  if (kind_ == CollectiveKind::kLocalSlice) x.varying = x.varying | axes_;
  return {x};
}

std::vector<Value> Collective::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value dy = context.cotangents[0];
  switch (kind_) {
    case CollectiveKind::kAllGather:
      if (size_of(g.type(dy).dtype) > size_of(sum_dtype_)) dy = convert(g, dy, sum_dtype_);
      return {reduce_scatter(g, dy, axes_, dim_, wide(g.type(dy).dtype))};
    case CollectiveKind::kReduceScatter: return {all_gather(g, dy, axes_, dim_)};
    case CollectiveKind::kGatherReplicated: return {local_slice(g, dy, axes_, dim_)};
    case CollectiveKind::kLocalSlice: return {gather_replicated(g, dy, axes_, dim_)};
    case CollectiveKind::kAllToAll: return {all_to_all(g, dy, axes_, concat_dim_, dim_)};
  }
  return Op::vjp(context);
}

namespace {
Value add_collective(Graph& g, CollectiveKind kind, Value x, AxisSet axes, int64_t dim,
                     int64_t concat_dim, DType dtype) {
  return g.add_one(std::make_shared<Collective>(kind, axes, dim, concat_dim, dtype), {x});
}
}  // namespace

Value all_gather(Graph& graph, Value x, AxisSet axes, int64_t dim) {
  return all_gather(graph, x, axes, dim, wide(graph.type(x).dtype));
}
Value all_gather(Graph& graph, Value x, AxisSet axes, int64_t dim, DType gradient_dtype) {
  return add_collective(graph, CollectiveKind::kAllGather, x, axes, dim, dim, gradient_dtype);
}
Value reduce_scatter(Graph& graph, Value x, AxisSet axes, int64_t dim, DType sum_dtype) {
  return add_collective(graph, CollectiveKind::kReduceScatter, x, axes, dim, dim, sum_dtype);
}
Value gather_replicated(Graph& graph, Value x, AxisSet axes, int64_t dim) {
  return add_collective(graph, CollectiveKind::kGatherReplicated, x, axes, dim, dim,
                        graph.type(x).dtype);
}
Value local_slice(Graph& graph, Value x, AxisSet axes, int64_t dim) {
  return add_collective(graph, CollectiveKind::kLocalSlice, x, axes, dim, dim, graph.type(x).dtype);
}
Value all_to_all(Graph& graph, Value x, AxisSet axes, int64_t split_dim, int64_t concat_dim) {
  return add_collective(graph, CollectiveKind::kAllToAll, x, axes, split_dim, concat_dim,
                        graph.type(x).dtype);
}
Value axis_index(Graph& graph, AxisSet axes) {
  return graph.add_one(std::make_shared<AxisIndex>(axes), {});
}
Value part_begin(Graph& graph, AxisSet axes, int64_t count) {
  return mul(graph, axis_index(graph, axes),
             constant(graph, {{}, DType::kI32}, static_cast<double>(count)));
}

}  // namespace tessera
