#include "ops/primitive/elementwise.h"

#include "ops/primitive/shaping.h"

namespace tessera {

std::string_view Unary::name() const {
  static constexpr std::string_view kNames[] = {"neg",  "exp",       "log", "sqrt", "rsqrt",
                                                "tanh", "logistic",  "erf", "sin",  "cos",
                                                "abs",  "is_finite", "not"};
  return kNames[static_cast<int>(kind_)];
}

std::vector<TensorType> Unary::infer(const InferContext& context) const {
  TensorType type = context.inputs[0];
  if (kind_ == UnaryKind::kNot) {
    require(type.dtype == DType::kBool, *this, "C1", "operand must be bool, is ", type);
  } else {
    require(is_float(type.dtype), *this, "C1", "operand must be a float, is ", type);
  }
  if (kind_ == UnaryKind::kIsFinite) type.dtype = DType::kBool;
  return {type};
}

std::vector<InPlacePair> Unary::in_place_pairs() const {
  if (kind_ == UnaryKind::kIsFinite) return {};
  return {{0, 0}};
}

std::vector<Value> Unary::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value x = context.node.inputs[0], y = context.node.outputs[0], dy = context.cotangents[0];
  auto times = [&](Value factor) { return std::vector<Value>{mul(g, dy, factor)}; };
  auto scalar = [&](double v) { return constant_like(g, x, v); };
  switch (kind_) {
    case UnaryKind::kNeg: return {unary(g, UnaryKind::kNeg, dy)};
    case UnaryKind::kExp: return times(y);
    case UnaryKind::kLog: return {div(g, dy, x)};
    case UnaryKind::kSqrt: return {div(g, mul(g, dy, scalar(0.5)), y)};
    case UnaryKind::kRsqrt: return times(mul(g, scalar(-0.5), mul(g, y, mul(g, y, y))));
    case UnaryKind::kTanh: return times(sub(g, scalar(1), mul(g, y, y)));
    case UnaryKind::kLogistic: return times(mul(g, y, sub(g, scalar(1), y)));
    case UnaryKind::kErf:  // 2/sqrt(pi) * e^(-x^2)
      return times(mul(g, scalar(1.1283791670955126),
                       unary(g, UnaryKind::kExp, unary(g, UnaryKind::kNeg, mul(g, x, x)))));
    case UnaryKind::kSin: return times(unary(g, UnaryKind::kCos, x));
    case UnaryKind::kCos: return times(unary(g, UnaryKind::kNeg, unary(g, UnaryKind::kSin, x)));
    case UnaryKind::kAbs:
      return {
          select(g, compare(g, Comparison::kLt, x, scalar(0)), unary(g, UnaryKind::kNeg, dy), dy)};
    case UnaryKind::kIsFinite:
    case UnaryKind::kNot: break;
  }
  return Op::vjp(context);
}

std::string_view Binary::name() const {
  static constexpr std::string_view kNames[] = {"add", "sub", "mul", "div", "max",
                                                "min", "pow", "and", "or"};
  return kNames[static_cast<int>(kind_)];
}

std::vector<TensorType> Binary::infer(const InferContext& context) const {
  const TensorType &a = context.inputs[0], &b = context.inputs[1];
  require(a.shape == b.shape && a.dtype == b.dtype, *this, "C1",
          "operands must have one shape and dtype: ", a, " and ", b);
  bool logical = kind_ == BinaryKind::kAnd || kind_ == BinaryKind::kOr;
  require(logical == (a.dtype == DType::kBool), *this, "C2", "wrong dtype: ", a);
  require(kind_ != BinaryKind::kPow || is_float(a.dtype), *this, "C3",
          "operands must be floats: ", a);
  return {a};
}

std::vector<Value> Binary::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value a = context.node.inputs[0], b = context.node.inputs[1], y = context.node.outputs[0],
        dy = context.cotangents[0];
  bool want_a = context.needed[0], want_b = context.needed[1];
  Value da, db;
  switch (kind_) {
    case BinaryKind::kAdd: return {dy, dy};
    case BinaryKind::kSub:
      if (want_b) db = unary(g, UnaryKind::kNeg, dy);
      return {dy, db};
    case BinaryKind::kMul:
      if (want_a) da = mul(g, dy, b);
      if (want_b) db = mul(g, dy, a);
      return {da, db};
    case BinaryKind::kDiv:
      if (want_a) da = div(g, dy, b);
      if (want_b) db = unary(g, UnaryKind::kNeg, div(g, mul(g, dy, y), b));
      return {da, db};
    case BinaryKind::kMax:
    case BinaryKind::kMin: {  // a tie gives all of it to the first operand
      Value zero = constant_like(g, dy, 0);
      Value first = compare(g, kind_ == BinaryKind::kMax ? Comparison::kGe : Comparison::kLe, a, b);
      if (want_a) da = select(g, first, dy, zero);
      if (want_b) db = select(g, first, zero, dy);
      return {da, db};
    }
    case BinaryKind::kPow:
      if (want_a)
        da = mul(g, dy,
                 mul(g, b, binary(g, BinaryKind::kPow, a, sub(g, b, constant_like(g, b, 1)))));
      if (want_b) db = mul(g, dy, mul(g, y, unary(g, UnaryKind::kLog, a)));
      return {da, db};
    case BinaryKind::kAnd:
    case BinaryKind::kOr: break;
  }
  return Op::vjp(context);
}

std::string_view name(Comparison comparison) {
  static constexpr std::string_view kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  return kNames[static_cast<int>(comparison)];
}

std::vector<TensorType> Compare::infer(const InferContext& context) const {
  const TensorType &a = context.inputs[0], &b = context.inputs[1];
  require(a.shape == b.shape && a.dtype == b.dtype, *this, "C1",
          "operands must have one shape and dtype: ", a, " and ", b);
  return {{a.shape, DType::kBool}};
}

std::vector<TensorType> Select::infer(const InferContext& context) const {
  const TensorType &p = context.inputs[0], &a = context.inputs[1], &b = context.inputs[2];
  require(p.dtype == DType::kBool && p.shape == a.shape, *this, "C1",
          "the predicate must be bool of the operands' shape: ", p, " for ", a);
  require(a.shape == b.shape && a.dtype == b.dtype, *this, "C2",
          "operands must have one shape and dtype: ", a, " and ", b);
  return {a};
}

std::vector<Value> Select::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value p = context.node.inputs[0], dy = context.cotangents[0], zero = constant_like(g, dy, 0);
  Value da = context.needed[1] ? select(g, p, dy, zero) : Value{};
  Value db = context.needed[2] ? select(g, p, zero, dy) : Value{};
  return {Value{}, da, db};
}

std::vector<TensorType> Convert::infer(const InferContext& context) const {
  return {{context.inputs[0].shape, to_}};
}

std::vector<Value> Convert::vjp(const VjpContext& context) const {
  return {convert(context.graph, context.cotangents[0],
                  context.graph.type(context.node.inputs[0]).dtype)};
}

Value unary(Graph& graph, UnaryKind kind, Value x) {
  return graph.add_one(std::make_shared<Unary>(kind), {x});
}
Value binary(Graph& graph, BinaryKind kind, Value a, Value b) {
  return graph.add_one(std::make_shared<Binary>(kind), {a, b});
}
Value compare(Graph& graph, Comparison comparison, Value a, Value b) {
  return graph.add_one(std::make_shared<Compare>(comparison), {a, b});
}
Value select(Graph& graph, Value predicate, Value a, Value b) {
  return graph.add_one(std::make_shared<Select>(), {predicate, a, b});
}
Value convert(Graph& graph, Value x, DType to) {
  if (graph.type(x).dtype == to) return x;
  return graph.add_one(std::make_shared<Convert>(to), {x});
}

}  // namespace tessera
