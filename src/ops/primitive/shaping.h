#pragma once
#include "ir/placement.h"

namespace tessera {

// Primitives that make, move and arrange elements without arithmetic.

// A tensor filled with one number.
class Constant final : public OpOf<Constant> {
 public:
  Constant(TensorType type, double value) : type_(std::move(type)), value_(value) {}
  double value() const { return value_; }
  std::string_view name() const override { return "constant"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 0; }
  std::vector<TensorType> infer(const InferContext&) const override {
    return {{type_.shape, type_.dtype}};
  }
  auto fields() const { return std::make_tuple(field("type", type_), field("value", value_)); }

 private:
  TensorType type_;
  double value_;
};

// A one-dim tensor of given numbers: short tables such as rotary frequencies.
class Table final : public OpOf<Table> {
 public:
  Table(DType dtype, std::vector<double> values) : dtype_(dtype), values_(std::move(values)) {}
  const std::vector<double>& values() const { return values_; }
  std::string_view name() const override { return "table"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 0; }
  std::vector<TensorType> infer(const InferContext&) const override {
    return {{{static_cast<int64_t>(values_.size())}, dtype_}};
  }
  auto fields() const { return std::make_tuple(field("dtype", dtype_), field("values", values_)); }

 private:
  DType dtype_;
  std::vector<double> values_;
};

// y[..., i, ...] = i along `dim`. A model file numbers its tokens by one.
class Iota final : public OpOf<Iota> {
 public:
  Iota(TensorType type, int64_t dim) : type_(std::move(type)), dim_(dim) {}
  int64_t dim() const { return dim_; }
  std::string_view name() const override { return "iota"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 0; }
  std::vector<TensorType> infer(const InferContext&) const override;
  // Numbers go on where those of earlier runs ended: dim 0 is the batch, or `dim` and that of one
  // sequence.
  std::vector<Value> continue_sequence(Continuation& continuation) const override;
  // Numbers of the tokens of [B, T, ...] count from the first of their document.
  std::vector<Value> restart_at_documents(DocumentContext& context) const override;
  auto fields() const { return std::make_tuple(field("type", type_), field("dim", dim_)); }

 private:
  TensorType type_;
  int64_t dim_;
};

// The same elements in another shape: a view.
class Reshape final : public OpOf<Reshape> {
 public:
  explicit Reshape(Shape shape) : shape_(std::move(shape)) {}
  std::string_view name() const override { return "reshape"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  // Stays split where a dim of the result begins where the split one does.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<int64_t> view_offsets() const override { return {0}; }
  auto fields() const { return std::make_tuple(field("shape", shape_)); }

 private:
  Shape shape_;
};

// Output dim i is input dim order[i].
class Transpose final : public OpOf<Transpose> {
 public:
  explicit Transpose(std::vector<int64_t> order) : order_(std::move(order)) {}
  const std::vector<int64_t>& order() const { return order_; }
  std::string_view name() const override { return "transpose"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  // Stays split along the same dim, wherever that goes.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(field("order", order_)); }

 private:
  std::vector<int64_t> order_;
};

// Input dim i becomes output dim dims[i] (ascending); the other output dims repeat.
class Broadcast final : public OpOf<Broadcast> {
 public:
  Broadcast(Shape shape, std::vector<int64_t> dims)
      : shape_(std::move(shape)), dims_(std::move(dims)) {}
  const std::vector<int64_t>& dims() const { return dims_; }
  std::string_view name() const override { return "broadcast"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(field("shape", shape_), field("dims", dims_)); }

 private:
  Shape shape_;
  std::vector<int64_t> dims_;
};

// Elements [begin, end) along `dim`.
class Slice final : public OpOf<Slice> {
 public:
  Slice(int64_t dim, int64_t begin, int64_t end) : dim_(dim), begin_(begin), end_(end) {}
  int64_t dim() const { return dim_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  std::string_view name() const override { return "slice"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const {
    return std::make_tuple(field("dim", dim_), field("begin", begin_), field("end", end_));
  }

 private:
  int64_t dim_, begin_, end_;
};

// `low` and `high` elements of `value` before and after along `dim`.
class Pad final : public OpOf<Pad> {
 public:
  Pad(int64_t dim, int64_t low, int64_t high, double value)
      : dim_(dim), low_(low), high_(high), value_(value) {}
  int64_t dim() const { return dim_; }
  int64_t low() const { return low_; }
  double value() const { return value_; }
  std::string_view name() const override { return "pad"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const {
    return std::make_tuple(field("dim", dim_), field("low", low_), field("high", high_),
                           field("value", value_));
  }

 private:
  int64_t dim_, low_, high_;
  double value_;
};

// Operands one after the other along `dim`.
class Concatenate final : public OpOf<Concatenate> {
 public:
  explicit Concatenate(int64_t dim) : dim_(dim) {}
  int64_t dim() const { return dim_; }
  std::string_view name() const override { return "concatenate"; }
  Tier tier() const override { return Tier::kPrimitive; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(field("dim", dim_)); }

 private:
  int64_t dim_;
};

// y[i..., :] = table[ids[i...], :]. table [V, D...], ids integers of any shape, each in [0, V).
class Gather final : public OpOf<Gather> {
 public:
  std::string_view name() const override { return "gather"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (table, ids)
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(); }
};

// y[V, D...] = 0, then y[ids[i...], :] += updates[i..., :] in ascending order of i, accumulated in
// f32 (f64 for f64) and rounded once.
class ScatterAdd final : public OpOf<ScatterAdd> {
 public:
  ScatterAdd(int64_t rows, DType dtype) : rows_(rows), dtype_(dtype) {}
  std::string_view name() const override { return "scatter_add"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (ids, updates)
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(field("rows", rows_), field("dtype", dtype_)); }

 private:
  int64_t rows_;
  DType dtype_;
};

Value constant(Graph& graph, const TensorType& type, double value);
// A constant of the shape and dtype of `like`.
Value constant_like(Graph& graph, Value like, double value);
Value iota(Graph& graph, const TensorType& type, int64_t dim);
Value reshape(Graph& graph, Value x, Shape shape);  // the same value if it has that shape
Value transpose(Graph& graph, Value x, std::vector<int64_t> order);
Value broadcast(Graph& graph, Value x, Shape shape, std::vector<int64_t> dims);
// x [..] repeated along new last dims / new first dims of `shape`.
Value broadcast_trailing(Graph& graph, Value x, const Shape& shape);  // x gives the first dims
Value broadcast_leading(Graph& graph, Value x, const Shape& shape);   // x gives the last dims
Value slice(Graph& graph, Value x, int64_t dim, int64_t begin, int64_t end);
Value concatenate(Graph& graph, std::vector<Value> xs, int64_t dim);

}  // namespace tessera
