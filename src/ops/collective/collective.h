#pragma once
#include "ir/graph.h"
#include "ir/marks.h"

namespace tessera {

// Collectives over the ranks along `axes`, n of them, in order of Mesh::index. Each is a linear map
// between typed spaces, and the gradient of each is its adjoint:
//   all_gather <-> reduce_scatter,  gather_replicated <-> local_slice,  all_to_all <-> all_to_all,
// beside vary <-> all_reduce of ir/marks.h. Sums are taken in rank order in f32 and rounded once.
enum class CollectiveKind {
  kAllGather,      // varying [.., d, ..] -> varying [.., n d, ..]: each rank may use it differently
  kReduceScatter,  // varying [.., n d, ..] -> varying [.., d, ..]: the sum, cut along dim
  kGatherReplicated,  // varying [.., d, ..] -> replicated [.., n d, ..]
  kLocalSlice,  // replicated [.., n d, ..] -> varying [.., d, ..]: this rank's part; no bytes move
  kAllToAll,    // varying: part j along dim of rank i becomes part i along concat_dim of rank j
};

class Collective final : public OpOf<Collective> {
 public:
  // `sum_dtype`: dtype of a reduce-scatter's output; of an all-gather: the widest dtype in which
  // its gradient travels, to be summed in wide(). concat_dim: of all_to_all.
  Collective(CollectiveKind kind, AxisSet axes, int64_t dim, int64_t concat_dim, DType sum_dtype)
      : kind_(kind), axes_(axes), dim_(dim), concat_dim_(concat_dim), sum_dtype_(sum_dtype) {}
  CollectiveKind kind() const { return kind_; }
  AxisSet axes() const { return axes_; }
  int64_t dim() const { return dim_; }
  int64_t concat_dim() const { return concat_dim_; }
  std::optional<Communication> communication() const override;
  std::string_view name() const override;
  Tier tier() const override { return Tier::kCollective; }
  int arity() const override { return 1; }
  bool sets_marks() const override { return true; }
  bool differentiable() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const {
    return std::make_tuple(field("axes", axes_), field("dim", dim_),
                           field("concat_dim", concat_dim_), field("sum_dtype", sum_dtype_));
  }

 private:
  CollectiveKind kind_;
  AxisSet axes_;
  int64_t dim_, concat_dim_;
  DType sum_dtype_;
};

// This rank's position along `axes` (Mesh::index): an i32 scalar that varies over them. The one
// thing by which a program tells its ranks apart.
class AxisIndex final : public OpOf<AxisIndex> {
 public:
  explicit AxisIndex(AxisSet axes) : axes_(axes) {}
  AxisSet axes() const { return axes_; }
  std::string_view name() const override { return "axis_index"; }
  Tier tier() const override { return Tier::kCollective; }
  int arity() const override { return 0; }
  bool sets_marks() const override { return true; }
  std::vector<TensorType> infer(const InferContext&) const override {
    return {{{}, DType::kI32, axes_}};
  }
  auto fields() const { return std::make_tuple(field("axes", axes_)); }

 private:
  AxisSet axes_;
};

Value all_gather(Graph& graph, Value x, AxisSet axes, int64_t dim);
// The same with the widest dtype in which the gradient travels: bf16 halves the bytes of an f32
// one.
Value all_gather(Graph& graph, Value x, AxisSet axes, int64_t dim, DType gradient_dtype);
// Result in `sum_dtype`, f32 for a bf16 gather's gradient.
Value reduce_scatter(Graph& graph, Value x, AxisSet axes, int64_t dim, DType sum_dtype);
Value gather_replicated(Graph& graph, Value x, AxisSet axes, int64_t dim);
Value local_slice(Graph& graph, Value x, AxisSet axes, int64_t dim);
Value all_to_all(Graph& graph, Value x, AxisSet axes, int64_t split_dim, int64_t concat_dim);
Value axis_index(Graph& graph, AxisSet axes);
// Where this rank's part begins in a dim that is cut into parts of `count`: an i32 scalar.
Value part_begin(Graph& graph, AxisSet axes, int64_t count);

}  // namespace tessera
