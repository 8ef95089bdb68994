#include "backends/ref/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/float16.h"
#include "base/random.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/random.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera::ref {
namespace {

using In = std::span<const Tensor* const>;
using Out = std::span<Tensor>;

// Calls body with a zero of the type in which tensors of this dtype are computed.
template <class Body>
void in_compute_type(DType dtype, Body body) {
  if (dtype == DType::kF64 || dtype == DType::kI64) {
    body(double{});
  } else {
    body(float{});
  }
}

// Row-major strides in elements.
std::vector<int64_t> strides(const Shape& shape) {
  std::vector<int64_t> s(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) s[i - 1] = s[i] * shape[i];
  return s;
}

// Visits every index of `shape` in row-major order with the offset that `step` strides give it.
template <class Body>
void for_each_offset(const Shape& shape, const std::vector<int64_t>& step, Body body) {
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = 0, count = num_elements(shape);
  for (int64_t i = 0; i < count; ++i) {
    body(i, offset);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += step[d];
      if (++index[d] < shape[d]) break;
      offset -= step[d] * shape[d];
      index[d] = 0;
    }
  }
}

template <class T>
T erf_approximation(T x) {
  if constexpr (sizeof(T) == 8) {
    return std::erf(x);
  } else {
    T a = std::abs(x), t = 1 / (1 + T(0.3275911) * a);
    T p = ((((T(1.061405429) * t - T(1.453152027)) * t + T(1.421413741)) * t - T(0.284496736)) * t +
           T(0.254829592)) *
          t;
    T y = 1 - p * std::exp(-a * a);
    return x < 0 ? -y : y;
  }
}

template <class T>
T apply_unary(UnaryKind kind, T x) {
  switch (kind) {
    case UnaryKind::kNeg: return -x;
    case UnaryKind::kExp: return std::exp(x);
    case UnaryKind::kLog: return std::log(x);
    case UnaryKind::kSqrt: return std::sqrt(x);
    case UnaryKind::kRsqrt: return 1 / std::sqrt(x);
    case UnaryKind::kTanh: return std::tanh(x);
    case UnaryKind::kLogistic: return 1 / (1 + std::exp(-x));
    case UnaryKind::kErf: return erf_approximation(x);
    case UnaryKind::kSin: return std::sin(x);
    case UnaryKind::kCos: return std::cos(x);
    case UnaryKind::kAbs: return std::abs(x);
    case UnaryKind::kIsFinite: return std::isfinite(x) ? 1 : 0;
    case UnaryKind::kNot: return x == 0 ? 1 : 0;
  }
  return x;
}

void unary_kernel(const Op& op, In in, Out out) {
  UnaryKind kind = static_cast<const Unary&>(op).kind();
  in_compute_type(in[0]->type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < out[0].data.size(); ++i)
      out[0].data[i] = apply_unary(kind, static_cast<T>(in[0]->data[i]));
  });
}

template <class T>
T apply_binary(BinaryKind kind, T a, T b, bool integer) {
  switch (kind) {
    case BinaryKind::kAdd: return a + b;
    case BinaryKind::kSub: return a - b;
    case BinaryKind::kMul: return a * b;
    case BinaryKind::kDiv: return integer ? std::trunc(a / b) : a / b;
    case BinaryKind::kMax: return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
    case BinaryKind::kMin: return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
    case BinaryKind::kPow: return std::pow(a, b);
    case BinaryKind::kAnd: return a != 0 && b != 0 ? 1 : 0;
    case BinaryKind::kOr: return a != 0 || b != 0 ? 1 : 0;
  }
  return a;
}

void binary_kernel(const Op& op, In in, Out out) {
  BinaryKind kind = static_cast<const Binary&>(op).kind();
  bool integer = !is_float(in[0]->type.dtype);
  in_compute_type(integer ? DType::kF64 : in[0]->type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < out[0].data.size(); ++i) {
      out[0].data[i] = apply_binary(kind, static_cast<T>(in[0]->data[i]),
                                    static_cast<T>(in[1]->data[i]), integer);
    }
  });
}

void compare_kernel(const Op& op, In in, Out out) {
  Comparison c = static_cast<const Compare&>(op).comparison();
  for (size_t i = 0; i < out[0].data.size(); ++i) {
    double a = in[0]->data[i], b = in[1]->data[i];
    bool y = c == Comparison::kEq   ? a == b
             : c == Comparison::kNe ? a != b
             : c == Comparison::kLt ? a < b
             : c == Comparison::kLe ? a <= b
             : c == Comparison::kGt ? a > b
                                    : a >= b;
    out[0].data[i] = y;
  }
}

void select_kernel(const Op&, In in, Out out) {
  for (size_t i = 0; i < out[0].data.size(); ++i)
    out[0].data[i] = in[0]->data[i] != 0 ? in[1]->data[i] : in[2]->data[i];
}

void copy_kernel(const Op&, In in, Out out) { out[0].data = in[0]->data; }

void convert_kernel(const Op&, In in, Out out) {
  out[0].data = in[0]->data;
  if (!is_float(out[0].type.dtype)) {
    bool to_bool = out[0].type.dtype == DType::kBool;
    for (double& x : out[0].data) x = to_bool ? (x != 0) : std::trunc(x);
  }
}

void constant_kernel(const Op& op, In, Out out) {
  std::fill(out[0].data.begin(), out[0].data.end(), static_cast<const Constant&>(op).value());
}

void table_kernel(const Op& op, In, Out out) {
  out[0].data = static_cast<const Table&>(op).values();
}

void iota_kernel(const Op& op, In, Out out) {
  std::vector<int64_t> step(out[0].type.shape.size(), 0);
  step[static_cast<size_t>(static_cast<const Iota&>(op).dim())] = 1;
  for_each_offset(out[0].type.shape, step, [&](int64_t i, int64_t offset) {
    out[0].data[static_cast<size_t>(i)] = static_cast<double>(offset);
  });
}

void random_bits_kernel(const Op& op, In in, Out out) {
  const auto& random = static_cast<const RandomBits&>(op);
  uint64_t stream = stream_of(random.stream());
  int64_t begin = random.part().whole() ? 0 : static_cast<int64_t>(in[1]->data[0]);
  RandomLines lines(out[0].type.shape, random.part(), begin);
  auto y = out[0].data.begin();
  for (double key : in[0]->data) {
    for (int64_t line = 0; line < lines.lines(); ++line)
      for (int64_t i = 0; i < lines.width(); ++i)
        *y++ = random_bits16(static_cast<uint64_t>(static_cast<int64_t>(key)), stream,
                             static_cast<uint64_t>(lines.line_begin(line) + i));
  }
}

// Output element i is input element `offset` of the strides given for the output's dims.
void strided_copy(const Tensor& in, Tensor& out, const std::vector<int64_t>& step, int64_t begin) {
  for_each_offset(out.type.shape, step, [&](int64_t i, int64_t offset) {
    out.data[static_cast<size_t>(i)] = in.data[static_cast<size_t>(begin + offset)];
  });
}

void transpose_kernel(const Op& op, In in, Out out) {
  auto s = strides(in[0]->type.shape);
  std::vector<int64_t> step;
  for (int64_t d : static_cast<const Transpose&>(op).order())
    step.push_back(s[static_cast<size_t>(d)]);
  strided_copy(*in[0], out[0], step, 0);
}

void broadcast_kernel(const Op& op, In in, Out out) {
  auto s = strides(in[0]->type.shape);
  std::vector<int64_t> step(out[0].type.shape.size(), 0);
  const auto& dims = static_cast<const Broadcast&>(op).dims();
  for (size_t i = 0; i < dims.size(); ++i) step[static_cast<size_t>(dims[i])] = s[i];
  strided_copy(*in[0], out[0], step, 0);
}

void slice_kernel(const Op& op, In in, Out out) {
  const auto& slice = static_cast<const Slice&>(op);
  auto s = strides(in[0]->type.shape);
  strided_copy(*in[0], out[0], s, slice.begin() * s[static_cast<size_t>(slice.dim())]);
}

// Writes `in` into `out` at position `begin` along dim.
void place(const Tensor& in, Tensor& out, int64_t dim, int64_t begin) {
  auto s = strides(out.type.shape);
  int64_t base = begin * s[static_cast<size_t>(dim)];
  for_each_offset(in.type.shape, s, [&](int64_t i, int64_t offset) {
    out.data[static_cast<size_t>(base + offset)] = in.data[static_cast<size_t>(i)];
  });
}

void pad_kernel(const Op& op, In in, Out out) {
  const auto& pad = static_cast<const Pad&>(op);
  std::fill(out[0].data.begin(), out[0].data.end(), pad.value());
  place(*in[0], out[0], pad.dim(), pad.low());
}

void concatenate_kernel(const Op& op, In in, Out out) {
  int64_t dim = static_cast<const Concatenate&>(op).dim(), begin = 0;
  for (const Tensor* t : in) {
    place(*t, out[0], dim, begin);
    begin += t->type.shape[static_cast<size_t>(dim)];
  }
}

void gather_kernel(const Op&, In in, Out out) {
  int64_t rows = in[0]->type.shape[0];
  auto width = static_cast<size_t>(rows ? in[0]->type.elements() / rows : 0);
  for (size_t i = 0; i < in[1]->data.size(); ++i) {
    auto id = static_cast<int64_t>(in[1]->data[i]);
    TESSERA_CHECK(id >= 0 && id < rows, cat("gather: id ", id, " of ", rows, " rows"));
    std::copy_n(in[0]->data.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(id) * width),
                width, out[0].data.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
}

void scatter_add_kernel(const Op&, In in, Out out) {
  std::fill(out[0].data.begin(), out[0].data.end(), 0.0);
  int64_t rows = out[0].type.shape[0];
  auto width = static_cast<size_t>(rows ? out[0].type.elements() / rows : 0);
  in_compute_type(out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < in[0]->data.size(); ++i) {
      auto id = static_cast<int64_t>(in[0]->data[i]);
      TESSERA_CHECK(id >= 0 && id < rows, cat("scatter_add: id ", id, " of ", rows, " rows"));
      for (size_t k = 0; k < width; ++k) {
        double& y = out[0].data[static_cast<size_t>(id) * width + k];
        y = static_cast<T>(y) + static_cast<T>(in[1]->data[i * width + k]);
      }
    }
  });
}

void reduce_kernel(const Op& op, In in, Out out) {
  const auto& reduce = static_cast<const Reduce&>(op);
  bool sum = reduce.reduction() == Reduction::kSum;
  std::vector<int64_t> step(in[0]->type.shape.size(), 0);
  auto s = strides(out[0].type.shape);
  size_t next = 0;
  for (size_t d = 0; d < step.size(); ++d) {
    if (std::find(reduce.dims().begin(), reduce.dims().end(), static_cast<int64_t>(d)) ==
        reduce.dims().end())
      step[d] = s[next++];
  }
  std::fill(out[0].data.begin(), out[0].data.end(),
            sum ? 0.0 : -std::numeric_limits<double>::infinity());
  in_compute_type(in[0]->type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_offset(in[0]->type.shape, step, [&](int64_t i, int64_t offset) {
      double& y = out[0].data[static_cast<size_t>(offset)];
      double x = in[0]->data[static_cast<size_t>(i)];
      y = sum ? static_cast<double>(static_cast<T>(y) + static_cast<T>(x))
              : (std::isnan(x) || std::isnan(y) ? x + y : std::max(x, y));
    });
  });
}

void dot_kernel(const Op& op, In in, Out out) {
  const auto& dot = static_cast<const Dot&>(op);
  const Shape &a = in[0]->type.shape, &b = in[1]->type.shape;
  auto sa = strides(a), sb = strides(b);
  // Output dims: batch, free of a, free of b; each has a stride in a and in b, one of them 0 unless
  // batch.
  std::vector<int64_t> step_a, step_b;
  for (size_t d = 0; d < a.size(); ++d) {
    if (static_cast<int64_t>(d) == dot.contract_a()) continue;
    step_a.push_back(sa[d]);
    step_b.push_back(static_cast<int64_t>(d) < dot.batch() ? sb[d] : 0);
  }
  for (size_t d = static_cast<size_t>(dot.batch()); d < b.size(); ++d) {
    if (static_cast<int64_t>(d) == dot.contract_b()) continue;
    step_a.push_back(0);
    step_b.push_back(sb[d]);
  }
  int64_t k = a[static_cast<size_t>(dot.contract_a())];
  int64_t ka = sa[static_cast<size_t>(dot.contract_a())],
          kb = sb[static_cast<size_t>(dot.contract_b())];
  std::vector<int64_t> offsets_b(out[0].data.size());
  for_each_offset(out[0].type.shape, step_b,
                  [&](int64_t i, int64_t offset) { offsets_b[static_cast<size_t>(i)] = offset; });
  in_compute_type(in[0]->type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_offset(out[0].type.shape, step_a, [&](int64_t i, int64_t offset_a) {
      const double* x = in[0]->data.data() + offset_a;
      const double* y = in[1]->data.data() + offsets_b[static_cast<size_t>(i)];
      T sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += static_cast<T>(x[j * ka]) * static_cast<T>(y[j * kb]);
      out[0].data[static_cast<size_t>(i)] = sum;
    });
  });
}

void unflatten_kernel(const Op& op, In in, Out out) {
  const auto& members = static_cast<const Unflatten&>(op).members();
  for (size_t m = 0; m < members.size(); ++m) {
    std::copy_n(in[0]->data.begin() + members[m].offset, out[m].data.size(), out[m].data.begin());
  }
}

void unstack_kernel(const Op&, In in, Out out) {
  auto from = in[0]->data.begin();
  for (Tensor& part : out) {
    auto size = static_cast<std::ptrdiff_t>(part.data.size());
    std::copy_n(from, size, part.data.begin());
    from += size;
  }
}

void flatten_kernel(const Op& op, In in, Out out) {
  const auto& offsets = static_cast<const Flatten&>(op).offsets();
  std::fill(out[0].data.begin(), out[0].data.end(), 0.0);
  for (size_t i = 0; i < in.size(); ++i)
    std::copy(in[i]->data.begin(), in[i]->data.end(), out[0].data.begin() + offsets[i]);
}

}  // namespace

double round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::kF32: return static_cast<float>(x);
    case DType::kBF16: return static_cast<float>(BF16(static_cast<float>(x)));
    case DType::kF16: return static_cast<float>(F16(static_cast<float>(x)));
    default: return x;
  }
}

Kernel find_kernel(std::string_view op_name) {
  static const std::map<std::string_view, Kernel> kKernels = [] {
    std::map<std::string_view, Kernel> k{{"compare", compare_kernel},
                                         {"select", select_kernel},
                                         {"convert", convert_kernel},
                                         {"stop_gradient", copy_kernel},
                                         {"constant", constant_kernel},
                                         {"table", table_kernel},
                                         {"iota", iota_kernel},
                                         {"random_bits", random_bits_kernel},
                                         {"reshape", copy_kernel},
                                         {"transpose", transpose_kernel},
                                         {"broadcast", broadcast_kernel},
                                         {"slice", slice_kernel},
                                         {"pad", pad_kernel},
                                         {"concatenate", concatenate_kernel},
                                         {"gather", gather_kernel},
                                         {"scatter_add", scatter_add_kernel},
                                         {"reduce_sum", reduce_kernel},
                                         {"reduce_max", reduce_kernel},
                                         {"dot", dot_kernel},
                                         {"unflatten", unflatten_kernel},
                                         {"unstack", unstack_kernel},
                                         {"flatten", flatten_kernel},
                                         {"offload", copy_kernel},
                                         {"fetch", copy_kernel}};
    for (const char* name : {"neg", "exp", "log", "sqrt", "rsqrt", "tanh", "logistic", "erf", "sin",
                             "cos", "abs", "is_finite", "not"})
      k[name] = unary_kernel;
    for (const char* name : {"add", "sub", "mul", "div", "max", "min", "pow", "and", "or"})
      k[name] = binary_kernel;
    return k;
  }();
  auto it = kKernels.find(op_name);
  return it == kKernels.end() ? nullptr : it->second;
}

}  // namespace tessera::ref
