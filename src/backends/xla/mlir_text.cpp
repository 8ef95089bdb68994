#include "backends/xla/mlir_text.h"

#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/float16.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

// Floats as their bits: every one of them can be written so.
std::string literal(DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      return format("0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
    case DType::kF32: return format("0x%08X", std::bit_cast<uint32_t>(static_cast<float>(value)));
    case DType::kBF16: return format("0x%04X", BF16(static_cast<float>(value)).bits);
    case DType::kF16: return format("0x%04X", F16(static_cast<float>(value)).bits);
    case DType::kI64:
    case DType::kI32: return cat(static_cast<int64_t>(value));
    case DType::kBool: return value != 0 ? "true" : "false";
  }
  throw InternalError("no such dtype");
}

// What no element of a maximum is below.
std::string lowest(std::string_view element) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (element == "f64") return literal(DType::kF64, -kInfinity);
  if (element == "f32") return literal(DType::kF32, -kInfinity);
  if (element == "bf16") return literal(DType::kBF16, -kInfinity);
  if (element == "f16") return literal(DType::kF16, -kInfinity);
  return element == "i64" ? cat(std::numeric_limits<int64_t>::min())
                          : cat(std::numeric_limits<int32_t>::min());
}

std::string names(std::span<const Tensor> tensors) {
  std::vector<std::string_view> parts;
  for (const Tensor& t : tensors) parts.push_back(t.name);
  return join(parts, ", ");
}

std::string types(std::span<const Tensor> tensors) {
  std::vector<std::string> parts;
  for (const Tensor& t : tensors) parts.push_back(t.type());
  return join(parts, ", ");
}

}  // namespace

std::string Tensor::type() const { return type_text(shape, element); }

// Ours but for bool.
std::string element_of(DType dtype) {
  return dtype == DType::kBool ? "i1" : std::string(name(dtype));
}

std::string type_text(const Shape& shape, std::string_view element) {
  std::string text = "tensor<";
  for (int64_t size : shape) text += cat(size, "x");
  return cat(text, element, ">");
}
std::string array_text(std::span<const int64_t> values) {
  return values.empty() ? "array<i64>" : cat("array<i64: ", join(values, ", "), ">");
}
std::string list_text(std::span<const int64_t> values) { return cat("[", join(values, ", "), "]"); }
std::string number_text(int64_t value) { return cat(value, " : i64"); }

std::string MlirText::fresh(std::string_view prefix) { return cat(prefix, next_++); }

Tensor MlirText::op(std::string_view name, std::span<const Tensor> inputs, Shape shape,
                    std::string_view element, const std::string& attributes,
                    const std::string& region) {
  Tensor result{fresh(), std::move(shape), std::string(element)};
  ++ops_;
  text_ += cat(result.name, " = \"stablehlo.", name, "\"(", names(inputs), ")", region,
               attributes.empty() ? "" : cat(" {", attributes, "}"), " : (", types(inputs), ") -> ",
               result.type(), place_, "\n");
  return result;
}

std::vector<Tensor> MlirText::ops_like(std::string_view name, std::span<const Tensor> inputs,
                                       std::span<const Tensor> results,
                                       const std::string& regions) {
  const std::string all = fresh();
  ++ops_;
  text_ += cat(all, ":", results.size(), " = \"stablehlo.", name, "\"(", names(inputs), ")",
               regions, " : (", types(inputs), ") -> (", types(results), ")", place_, "\n");
  std::vector<Tensor> made(results.begin(), results.end());
  for (size_t i = 0; i < made.size(); ++i) made[i].name = cat(all, "#", i);
  return made;
}

Tensor MlirText::constant(const Shape& shape, std::string_view element,
                          const std::string& literal) {
  const std::string type = type_text(shape, element);
  auto [known, fresh] = constants_.try_emplace(cat(type, literal));
  if (fresh)
    known->second =
        op("constant", {}, shape, element, cat("value = dense<", literal, "> : ", type));
  return known->second;
}

Tensor MlirText::splat(const Shape& shape, DType dtype, double value) {
  return constant(shape, element_of(dtype), literal(dtype, value));
}
Tensor MlirText::splat(const Shape& shape, std::string_view element, uint64_t value) {
  return constant(shape, element, cat(value));
}
Tensor MlirText::values(DType dtype, std::span<const double> values) {
  std::vector<std::string> items;
  for (double v : values) items.push_back(literal(dtype, v));
  return constant({std::ssize(items)}, element_of(dtype), cat("[", join(items, ", "), "]"));
}
Tensor MlirText::values(std::string_view element, std::span<const int64_t> values) {
  return constant({std::ssize(values)}, element, list_text(values));
}
Tensor MlirText::iota(const Shape& shape, std::string_view element, int64_t dim) {
  return op("iota", {}, shape, element, cat("iota_dimension = ", number_text(dim)));
}

Tensor MlirText::unary(std::string_view name, const Tensor& x) {
  return op(name, {{x}}, x.shape, x.element);
}
Tensor MlirText::binary(std::string_view name, const Tensor& a, const Tensor& b) {
  return op(name, {{a, b}}, a.shape, a.element);
}
Tensor MlirText::compare(std::string_view direction, const Tensor& a, const Tensor& b) {
  return op("compare", {{a, b}}, a.shape, "i1",
            cat("comparison_direction = #stablehlo<comparison_direction ", direction, ">"));
}
Tensor MlirText::select(const Tensor& predicate, const Tensor& a, const Tensor& b) {
  return op("select", {{predicate, a, b}}, a.shape, a.element);
}
Tensor MlirText::convert(const Tensor& x, std::string_view element) {
  return x.element == element ? x : op("convert", {{x}}, x.shape, element);
}

Tensor MlirText::reshape(const Tensor& x, const Shape& shape) {
  return x.shape == shape ? x : op("reshape", {{x}}, shape, x.element);
}
Tensor MlirText::transpose(const Tensor& x, std::span<const int64_t> order) {
  Shape shape;
  for (int64_t dim : order) shape.push_back(x.shape[static_cast<size_t>(dim)]);
  return op("transpose", {{x}}, shape, x.element, cat("permutation = ", array_text(order)));
}
Tensor MlirText::broadcast(const Tensor& x, const Shape& shape, std::span<const int64_t> dims) {
  return op("broadcast_in_dim", {{x}}, shape, x.element,
            cat("broadcast_dimensions = ", array_text(dims)));
}
Tensor MlirText::slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end) {
  Shape from(x.shape.size(), 0), to(x.shape), shape(x.shape);
  from[static_cast<size_t>(dim)] = begin;
  to[static_cast<size_t>(dim)] = end;
  shape[static_cast<size_t>(dim)] = end - begin;
  return op("slice", {{x}}, shape, x.element,
            cat("start_indices = ", array_text(from), ", limit_indices = ", array_text(to),
                ", strides = ", array_text(Shape(x.shape.size(), 1))));
}
Tensor MlirText::slice_at(const Tensor& x, int64_t dim, const Tensor& begin, int64_t size) {
  const Tensor zero = splat({}, begin.element, 0);
  std::vector<Tensor> inputs{x};
  for (int64_t d = 0; d < std::ssize(x.shape); ++d) inputs.push_back(d == dim ? begin : zero);
  Shape shape = x.shape;
  shape[static_cast<size_t>(dim)] = size;
  return op("dynamic_slice", inputs, shape, x.element, cat("slice_sizes = ", array_text(shape)));
}
Tensor MlirText::update_at(const Tensor& x, const Tensor& part, int64_t dim, const Tensor& begin) {
  const Tensor zero = splat({}, begin.element, 0);
  std::vector<Tensor> inputs{x, part};
  for (int64_t d = 0; d < std::ssize(x.shape); ++d) inputs.push_back(d == dim ? begin : zero);
  return op("dynamic_update_slice", inputs, x.shape, x.element);
}
Tensor MlirText::pad(const Tensor& x, int64_t dim, int64_t low, int64_t size, const Tensor& value) {
  Shape before(x.shape.size(), 0), behind(before), none(before), shape(x.shape);
  before[static_cast<size_t>(dim)] = low;
  behind[static_cast<size_t>(dim)] = size - low - x.shape[static_cast<size_t>(dim)];
  shape[static_cast<size_t>(dim)] = size;
  return op("pad", {{x, value}}, shape, x.element,
            cat("edge_padding_low = ", array_text(before), ", edge_padding_high = ",
                array_text(behind), ", interior_padding = ", array_text(none)));
}
Tensor MlirText::concatenate(std::span<const Tensor> xs, int64_t dim) {
  if (xs.size() == 1) return xs[0];
  Shape shape = xs[0].shape;
  int64_t& size = shape[static_cast<size_t>(dim)];
  size = 0;
  for (const Tensor& x : xs) size += x.shape[static_cast<size_t>(dim)];
  return op("concatenate", xs, shape, xs[0].element, cat("dimension = ", number_text(dim)));
}

namespace {

Shape without(const Shape& shape, std::span<const int64_t> dims) {
  Shape left;
  for (int64_t d = 0; d < std::ssize(shape); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end())
      left.push_back(shape[static_cast<size_t>(d)]);
  return left;
}

}  // namespace

Tensor MlirText::sum(const Tensor& x, std::span<const int64_t> dims) {
  const Tensor zero = constant({}, x.element, x.element.find('f') < 2 ? "0.0" : "0");
  return op("reduce", {{x, zero}}, without(x.shape, dims), x.element,
            cat("dimensions = ", array_text(dims)), reducer("add", x.element));
}
Tensor MlirText::maximum(const Tensor& x, std::span<const int64_t> dims) {
  const Tensor least = constant({}, x.element, lowest(x.element));
  return op("reduce", {{x, least}}, without(x.shape, dims), x.element,
            cat("dimensions = ", array_text(dims)), reducer("maximum", x.element));
}

Tensor MlirText::dot(const Tensor& a, const Tensor& b, int64_t batch,
                     std::span<const int64_t> contract_a, std::span<const int64_t> contract_b,
                     std::string_view element) {
  std::vector<int64_t> batches(static_cast<size_t>(batch));
  std::iota(batches.begin(), batches.end(), 0);
  Shape shape(a.shape.begin(), a.shape.begin() + batch);
  auto add_free = [&](const Shape& of, std::span<const int64_t> contracted) {
    const Shape left = without(of, contracted);
    shape.insert(shape.end(), left.begin() + batch, left.end());
  };
  add_free(a.shape, contract_a);
  add_free(b.shape, contract_b);
  const std::string dims = batch == 0
                               ? ""
                               : cat("lhs_batching_dimensions = ", list_text(batches),
                                     ", rhs_batching_dimensions = ", list_text(batches), ", ");
  return op("dot_general", {{a, b}}, shape, element,
            cat("dot_dimension_numbers = #stablehlo.dot<", dims, "lhs_contracting_dimensions = ",
                list_text(contract_a), ", rhs_contracting_dimensions = ", list_text(contract_b),
                ">, precision_config = [#stablehlo<precision DEFAULT>, "
                "#stablehlo<precision DEFAULT>]"));
}

Tensor MlirText::barrier(const Tensor& x, std::span<const Tensor> ties) {
  if (ties.empty()) return unary("optimization_barrier", x);
  std::vector<Tensor> all{x};
  all.insert(all.end(), ties.begin(), ties.end());
  return ops_like("optimization_barrier", all, all)[0];
}

// Constants belong to the region in which they are written.
std::vector<Tensor> MlirText::loop(const Tensor& begin, const std::function<Tensor()>& end,
                                   std::span<const Tensor> carried, const Body& body) {
  std::vector<Tensor> all{begin};
  all.insert(all.end(), carried.begin(), carried.end());
  std::string outside = std::exchange(text_, {});
  auto constants = std::exchange(constants_, {});
  auto begin_region = [&] {
    std::vector<std::string> parts;
    std::vector<Tensor> arguments = all;
    for (Tensor& a : arguments) {
      a.name = fresh("%a");
      parts.push_back(cat(a.name, ": ", a.type()));
    }
    constants_.clear();
    text_ = cat("^bb0(", join(parts, ", "), "):\n");
    return arguments;
  };
  auto end_region = [&](std::span<const Tensor> results) {
    text_ += cat("\"stablehlo.return\"(", names(results), ") : (", types(results), ") -> ()\n");
    return std::exchange(text_, {});
  };
  std::vector<Tensor> in = begin_region();
  const Tensor more = compare("LT", in[0], end());
  const std::string condition = end_region({{more}});
  in = begin_region();
  std::vector<Tensor> next = body(in[0], std::span(in).subspan(1));
  next.insert(next.begin(), binary("add", in[0], splat({}, "i32", 1)));
  const std::string turn = end_region(next);
  text_ = std::move(outside);
  constants_ = std::move(constants);
  std::vector<Tensor> results =
      ops_like("while", all, all, cat(" ({\n", condition, "}, {\n", turn, "})"));
  results.erase(results.begin());
  return results;
}

std::vector<Tensor> MlirText::loop(int64_t count, std::span<const Tensor> carried,
                                   const Body& body) {
  return loop(
      splat({}, "i32", 0), [&] { return splat({}, "i32", static_cast<uint64_t>(count)); }, carried,
      body);
}
std::vector<Tensor> MlirText::loop(const Tensor& begin, const Tensor& end,
                                   std::span<const Tensor> carried, const Body& body) {
  return loop(
      begin, [&] { return end; }, carried, body);
}

std::string MlirText::reducer(std::string_view name, std::string_view element) {
  const std::string scalar = type_text({}, element);
  return cat(" ({\n^bb0(%l: ", scalar, ", %r: ", scalar, "):\n%s = \"stablehlo.", name,
             "\"(%l, %r) : (", scalar, ", ", scalar, ") -> ", scalar,
             "\n\"stablehlo.return\"(%s) : (", scalar, ") -> ()\n})");
}
std::string MlirText::replacer(std::string_view element) {
  const std::string scalar = type_text({}, element);
  return cat(" ({\n^bb0(%l: ", scalar, ", %r: ", scalar, "):\n\"stablehlo.return\"(%r) : (", scalar,
             ") -> ()\n})");
}

}  // namespace tessera::xla
