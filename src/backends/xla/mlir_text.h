#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace tessera::xla {

// A value of the text: "%v12", of tensor<2x3xbf16>.
struct Tensor {
  std::string name;
  Shape shape;
  std::string element;  // MLIR's: "f32", "i64", "i1", "ui32"
  std::string type() const;
};

std::string element_of(DType dtype);
std::string type_text(const Shape& shape, std::string_view element);
// "array<i64: 1, 2>", "[1, 2]", "3 : i64".
std::string array_text(std::span<const int64_t> values);
std::string list_text(std::span<const int64_t> values);
std::string number_text(int64_t value);

// StableHLO in MLIR's generic form, op by op:
//   %v2 = "stablehlo.add"(%v0, %v1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
// Results follow from operands where an op leaves no choice. Nothing is checked here: graphs are
// checked, and so is the text by whoever compiles it.
class MlirText {
 public:
  const std::string& text() const { return text_; }
  // What the ops from here on are for, as XLA's messages and profiles name it.
  void set_place(const std::string& place) { place_ = " loc(\"" + place + "\")"; }
  int64_t ops() const { return ops_; }

  // Any op of one result, "stablehlo." left out of its name.
  Tensor op(std::string_view name, std::span<const Tensor> inputs, Shape shape,
            std::string_view element, const std::string& attributes = {},
            const std::string& region = {});
  // Any op of as many results as types.
  std::vector<Tensor> ops_like(std::string_view name, std::span<const Tensor> inputs,
                               std::span<const Tensor> results, const std::string& regions = {});

  // Filled with one number. Written once, whoever asks.
  Tensor splat(const Shape& shape, DType dtype, double value);
  Tensor splat(const Shape& shape, std::string_view element, uint64_t value);
  Tensor values(DType dtype, std::span<const double> values);  // of one dim
  Tensor values(std::string_view element, std::span<const int64_t> values);
  Tensor iota(const Shape& shape, std::string_view element, int64_t dim);

  // Elementwise, on operands of one type.
  Tensor unary(std::string_view name, const Tensor& x);
  Tensor binary(std::string_view name, const Tensor& a, const Tensor& b);
  Tensor compare(std::string_view direction, const Tensor& a, const Tensor& b);
  Tensor select(const Tensor& predicate, const Tensor& a, const Tensor& b);
  Tensor convert(const Tensor& x, std::string_view element);  // x itself if it has that

  Tensor reshape(const Tensor& x, const Shape& shape);  // x itself if it has that
  Tensor transpose(const Tensor& x, std::span<const int64_t> order);
  Tensor broadcast(const Tensor& x, const Shape& shape, std::span<const int64_t> dims);
  Tensor spread(const Tensor& scalar, const Shape& shape) { return broadcast(scalar, shape, {}); }
  Tensor slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end);
  // `size` elements along dim from `begin` on, an integer scalar.
  Tensor slice_at(const Tensor& x, int64_t dim, const Tensor& begin, int64_t size);
  // x with `part` in place of what slice_at() gives.
  Tensor update_at(const Tensor& x, const Tensor& part, int64_t dim, const Tensor& begin);
  // Of so many elements along dim, x from `low` on and `value`, a scalar, around it.
  Tensor pad(const Tensor& x, int64_t dim, int64_t low, int64_t size, const Tensor& value);
  Tensor concatenate(std::span<const Tensor> xs, int64_t dim);
  Tensor sum(const Tensor& x, std::span<const int64_t> dims);
  Tensor maximum(const Tensor& x, std::span<const int64_t> dims);
  // Sums of products over dims of both, for each of the first `batch` dims; then the other dims of
  // a, and those of b.
  Tensor dot(const Tensor& a, const Tensor& b, int64_t batch, std::span<const int64_t> contract_a,
             std::span<const int64_t> contract_b, std::string_view element);
  // What it gives is made once and nobody looks behind it: `ties` are there before it is.
  Tensor barrier(const Tensor& x, std::span<const Tensor> ties = {});

  // `count` times body(number of the turn, carried): what it gives is carried into the next turn.
  // It may read what stands before the loop.
  using Body = std::function<std::vector<Tensor>(const Tensor& turn, std::span<const Tensor>)>;
  std::vector<Tensor> loop(int64_t count, std::span<const Tensor> carried, const Body& body);
  // Turns from `begin` to before `end`, i32 scalars.
  std::vector<Tensor> loop(const Tensor& begin, const Tensor& end, std::span<const Tensor> carried,
                           const Body& body);

  // A region of a reduction: two scalars and an op of them.
  static std::string reducer(std::string_view name, std::string_view element);
  // One that gives the second.
  static std::string replacer(std::string_view element);

 private:
  std::string fresh(std::string_view prefix = "%v");
  Tensor constant(const Shape& shape, std::string_view element, const std::string& literal);
  std::vector<Tensor> loop(const Tensor& begin, const std::function<Tensor()>& end,
                           std::span<const Tensor> carried, const Body& body);

  std::string text_, place_;
  int64_t next_ = 0, ops_ = 0;
  std::map<std::string, Tensor> constants_;  // by type and literal, of the region that is written
};

}  // namespace tessera::xla
