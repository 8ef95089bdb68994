#include <algorithm>
#include <cmath>
#include <functional>

#include "backends/cpu/element_types.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/primitive_kernels.h"
#include "ops/primitive/elementwise.h"

namespace tessera::cpu {
namespace {

// Every loop below reads element i of its operands before it writes element i of its result, so a
// result may share the storage of an operand of its size.

template <class In, class Out, class F>
Launch map_launch(const PrepareContext& context, ThreadPool& pool, F f) {
  int64_t n = context.outputs[0].elements();
  return {cat(context.op.name(), " portable"), 0, [n, f, &pool](const LaunchArguments& arguments) {
            auto x = arguments.input<In>(0);
            auto y = arguments.output<Out>(0);
            for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                y[i] = static_cast<Out>(f(static_cast<ComputeOf<In>>(x[i])));
              }
            });
          }};
}

template <class In, class Out, class F>
Launch zip_launch(const PrepareContext& context, ThreadPool& pool, F f) {
  int64_t n = context.outputs[0].elements();
  return {cat(context.op.name(), " portable"), 0, [n, f, &pool](const LaunchArguments& arguments) {
            auto a = arguments.input<In>(0);
            auto b = arguments.input<In>(1);
            auto y = arguments.output<Out>(0);
            for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                y[i] = static_cast<Out>(
                    f(static_cast<ComputeOf<In>>(a[i]), static_cast<ComputeOf<In>>(b[i])));
              }
            });
          }};
}

// Formula 7.1.26 of Abramowitz and Stegun in f32; in f64 the exact function.
float erf_of(float x) {
  float a = std::abs(x), t = 1 / (1 + 0.3275911f * a);
  float p = 1.061405429f;
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = p * t + c;
  float y = 1 - p * t * std::exp(-a * a);
  return x < 0 ? -y : y;
}
double erf_of(double x) { return std::erf(x); }

Prepared prepare_unary(const PrepareContext& context, ThreadPool& pool) {
  auto kind = static_cast<const Unary&>(context.op).kind();
  if (kind == UnaryKind::kNot) {
    return map_launch<uint8_t, uint8_t>(context, pool, [](uint8_t x) { return x == 0; });
  }
  return for_float(
      context, context.inputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        auto map = [&](auto f) { return map_launch<T, T>(context, pool, f); };
        using C = ComputeOf<T>;
        switch (kind) {
          case UnaryKind::kNeg: return map([](C x) { return -x; });
          case UnaryKind::kExp: return map([](C x) { return std::exp(x); });
          case UnaryKind::kLog: return map([](C x) { return std::log(x); });
          case UnaryKind::kSqrt: return map([](C x) { return std::sqrt(x); });
          case UnaryKind::kRsqrt: return map([](C x) { return 1 / std::sqrt(x); });
          case UnaryKind::kTanh: return map([](C x) { return std::tanh(x); });
          case UnaryKind::kLogistic: return map([](C x) { return 1 / (1 + std::exp(-x)); });
          case UnaryKind::kErf: return map([](C x) { return erf_of(x); });
          case UnaryKind::kSin: return map([](C x) { return std::sin(x); });
          case UnaryKind::kCos: return map([](C x) { return std::cos(x); });
          case UnaryKind::kAbs: return map([](C x) { return std::abs(x); });
          case UnaryKind::kIsFinite:
            return map_launch<T, uint8_t>(context, pool, [](C x) { return std::isfinite(x); });
          case UnaryKind::kNot: break;
        }
        return no_kernel(context, context.inputs[0].dtype);
      });
}

template <class C>
Prepared prepare_float_binary(BinaryKind kind, const PrepareContext& context, auto zip) {
  switch (kind) {
    case BinaryKind::kAdd: return zip([](C a, C b) { return a + b; });
    case BinaryKind::kSub: return zip([](C a, C b) { return a - b; });
    case BinaryKind::kMul: return zip([](C a, C b) { return a * b; });
    case BinaryKind::kDiv: return zip([](C a, C b) { return a / b; });
    // A NaN on either side comes out of max and min.
    case BinaryKind::kMax:
      return zip([](C a, C b) { return a != a || b != b ? a + b : std::max(a, b); });
    case BinaryKind::kMin:
      return zip([](C a, C b) { return a != a || b != b ? a + b : std::min(a, b); });
    case BinaryKind::kPow: return zip([](C a, C b) { return std::pow(a, b); });
    case BinaryKind::kAnd:
    case BinaryKind::kOr: break;
  }
  return no_kernel(context, context.inputs[0].dtype);
}

// Sums and products wrap around. Division, toward zero, never traps: x / 0 is -1 and the lowest
// integer over -1 is itself, as in XLA.
template <class C>
Prepared prepare_integer_binary(BinaryKind kind, const PrepareContext& context, auto zip) {
  using U = std::make_unsigned_t<C>;
  switch (kind) {
    case BinaryKind::kAdd:
      return zip([](C a, C b) { return static_cast<U>(a) + static_cast<U>(b); });
    case BinaryKind::kSub:
      return zip([](C a, C b) { return static_cast<U>(a) - static_cast<U>(b); });
    case BinaryKind::kMul:
      return zip([](C a, C b) { return static_cast<U>(a) * static_cast<U>(b); });
    case BinaryKind::kDiv:
      return zip([](C a, C b) {
        if (b == 0) return C{-1};
        return b == -1 ? static_cast<C>(U{0} - static_cast<U>(a)) : a / b;
      });
    case BinaryKind::kMax: return zip([](C a, C b) { return std::max(a, b); });
    case BinaryKind::kMin: return zip([](C a, C b) { return std::min(a, b); });
    case BinaryKind::kPow:
    case BinaryKind::kAnd:
    case BinaryKind::kOr: break;
  }
  return no_kernel(context, context.inputs[0].dtype);
}

Prepared prepare_binary(const PrepareContext& context, ThreadPool& pool) {
  auto kind = static_cast<const Binary&>(context.op).kind();
  if (kind == BinaryKind::kAnd) {
    return zip_launch<uint8_t, uint8_t>(context, pool,
                                        [](uint8_t a, uint8_t b) { return a != 0 && b != 0; });
  }
  if (kind == BinaryKind::kOr) {
    return zip_launch<uint8_t, uint8_t>(context, pool,
                                        [](uint8_t a, uint8_t b) { return a != 0 || b != 0; });
  }
  return for_number(context, context.inputs[0].dtype,
                    [&]<class T>(std::type_identity<T>) -> Prepared {
                      auto zip = [&](auto f) { return zip_launch<T, T>(context, pool, f); };
                      if constexpr (FloatCompute<T>) {
                        return prepare_float_binary<ComputeOf<T>>(kind, context, zip);
                      } else {
                        return prepare_integer_binary<T>(kind, context, zip);
                      }
                    });
}

Prepared prepare_compare(const PrepareContext& context, ThreadPool& pool) {
  Comparison comparison = static_cast<const Compare&>(context.op).comparison();
  return for_element(context, context.inputs[0].dtype,
                     [&]<class T>(std::type_identity<T>) -> Prepared {
                       auto zip = [&](auto f) { return zip_launch<T, uint8_t>(context, pool, f); };
                       switch (comparison) {
                         case Comparison::kEq: return zip(std::equal_to<>{});
                         case Comparison::kNe: return zip(std::not_equal_to<>{});
                         case Comparison::kLt: return zip(std::less<>{});
                         case Comparison::kLe: return zip(std::less_equal<>{});
                         case Comparison::kGt: return zip(std::greater<>{});
                         case Comparison::kGe: return zip(std::greater_equal<>{});
                       }
                       return no_kernel(context, context.inputs[0].dtype);
                     });
}

Prepared prepare_select(const PrepareContext& context, ThreadPool& pool) {
  int64_t n = context.outputs[0].elements();
  return for_bits(context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
    return Launch{"select portable", 0, [n, &pool](const LaunchArguments& arguments) {
                    auto predicate = arguments.input<uint8_t>(0);
                    auto a = arguments.input<T>(1);
                    auto b = arguments.input<T>(2);
                    auto y = arguments.output<T>(0);
                    for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) y[i] = predicate[i] != 0 ? a[i] : b[i];
                    });
                  }};
  });
}

Prepared prepare_convert(const PrepareContext& context, ThreadPool& pool) {
  DType from_dtype = context.inputs[0].dtype, to_dtype = context.outputs[0].dtype;
  return for_element(context, from_dtype, [&]<class From>(std::type_identity<From>) {
    return for_element(context, to_dtype, [&]<class To>(std::type_identity<To>) -> Prepared {
      int64_t n = context.outputs[0].elements();
      return Launch{"convert portable", 0, [n, &pool](const LaunchArguments& arguments) {
                      auto x = arguments.input<From>(0);
                      auto y = arguments.output<To>(0);
                      for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) y[i] = convert_element<To>(x[i]);
                      });
                    }};
    });
  });
}

// The two that matter for speed have kernels for every instruction set; they decline other dtypes.

Prepared prepare_vector_add(const PrepareContext& context, Isa isa, ThreadPool& pool) {
  DType dtype = context.outputs[0].dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    return cat("vector add takes f32 and bf16, not ", name(dtype));
  int64_t n = context.outputs[0].elements();
  return Launch{cat("add ", name(isa)), 0, [=, &pool](const LaunchArguments& arguments) {
                  add(dtype, arguments.inputs[0], arguments.inputs[1], arguments.outputs[0], n, isa,
                      pool);
                }};
}

Prepared prepare_vector_convert(const PrepareContext& context, Isa isa, ThreadPool& pool) {
  DType from = context.inputs[0].dtype, to = context.outputs[0].dtype;
  int64_t n = context.outputs[0].elements();
  std::string kernel = cat("convert ", name(isa));
  if (from == DType::kF32 && to == DType::kBF16) {
    return Launch{kernel, 0, [=, &pool](const LaunchArguments& arguments) {
                    cast_to_bf16(arguments.input<float>(0), arguments.output<BF16>(0), n, isa,
                                 pool);
                  }};
  }
  if (from == DType::kBF16 && to == DType::kF32) {
    return Launch{kernel, 0, [=, &pool](const LaunchArguments& arguments) {
                    cast_to_f32(arguments.input<BF16>(0), arguments.output<float>(0), n, isa, pool);
                  }};
  }
  return cat("vector convert takes f32 and bf16, not ", name(from), " to ", name(to));
}

}  // namespace

void register_elementwise_primitives(KernelTable& table, Isa isa, ThreadPool& pool) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op,
              [prepare, &pool](const PrepareContext& context) { return prepare(context, pool); });
  };
  table.add("add",
            [=, &pool](const PrepareContext& c) { return prepare_vector_add(c, isa, pool); });
  table.add("convert",
            [=, &pool](const PrepareContext& c) { return prepare_vector_convert(c, isa, pool); });
  for (std::string_view op : {"neg", "exp", "log", "sqrt", "rsqrt", "tanh", "logistic", "erf",
                              "sin", "cos", "abs", "is_finite", "not"}) {
    add_to_table(op, prepare_unary);
  }
  for (std::string_view op : {"add", "sub", "mul", "div", "max", "min", "pow", "and", "or"}) {
    add_to_table(op, prepare_binary);
  }
  add_to_table("compare", prepare_compare);
  add_to_table("select", prepare_select);
  add_to_table("convert", prepare_convert);
}

}  // namespace tessera::cpu
