#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "ir/tensor_type.h"

namespace tessera {

class Continuation;
class DocumentContext;
class Graph;
class Op;
class PlacementContext;
struct Node;

// A handle to a tensor of a graph; prints as %12. Default-constructed: no value.
struct Value {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
  friend auto operator<=>(Value, Value) = default;
};

// kPrimitive: the closed set with StableHLO's semantics; has a reference kernel.
// kComposite: is its decomposition into primitives; a backend may have a kernel of its own.
// kCollective: works on all ranks of mesh axes.
// kInput: a value from outside the graph.
enum class Tier { kPrimitive, kComposite, kCollective, kInput };

// Near: the memory on which kernels work. Far: larger and slower; its bytes are brought near first.
enum class MemoryTier : uint8_t { kNear, kFar };

// Arithmetic and traffic of one launch, for speed-of-light figures. Bytes count each operand once.
struct Cost {
  double flops = 0;
  double bytes = 0;
  double link_bytes = 0;        // of these, what moves between near and far tier
  double recomputed_flops = 0;  // of flops, for values that another op computed already
};

// Everything infer() may look at.
struct InferContext {
  std::span<const TensorType> inputs;
  const Mesh& mesh;
};

// A request for the gradient of one node: `cotangents[i]` is the cotangent of output i (or no
// value), `needed[i]` whether input i wants one. The op appends its backward nodes to `graph`.
struct VjpContext {
  Graph& graph;
  const Node& node;
  std::span<const Value> cotangents;
  std::span<const bool> needed;
  // What later uses of an input gave it, if that is one value of that dtype; several are summed
  // with the gradient that is returned. Whoever takes it returns a gradient to which it is added.
  const std::function<Value(size_t input, DType dtype)>& take_sum;

  // Appends `op`, whose output 0 is the gradient of that input in that dtype: where there is a sum
  // to take, in the form that adds to it (Op::adding).
  std::vector<Value> add(size_t input, DType dtype, const std::shared_ptr<const Op>& op,
                         std::vector<Value> operands) const;
};

// What ranks that differ along `axes` exchange.
enum class Traffic : uint8_t { kGather, kReduceScatter, kAllReduce, kAllToAll };
struct Communication {
  Traffic traffic;
  AxisSet axes;
};

// What works side by side where a program runs: on a host compute is the thread that walks the plan
// and the exchanges the communicator's, on a device each is a stream. Gathers have a lane of their
// own, so that none waits behind a reduction.
enum class Lane : uint8_t { kCompute, kGather, kReduce, kCopy };
std::string_view name(Lane lane);

// Output `output` may be computed in the bytes of input `input`.
struct InPlacePair {
  int input = 0;
  int output = 0;
};

// An operation with its attributes; immutable, shared between graphs.
class Op {
 public:
  virtual ~Op() = default;
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  virtual std::string_view name() const = 0;
  virtual Tier tier() const = 0;

  // Number of operands, which Graph::add holds every use against before infer() sees it.
  // kAnyNumber: infer() checks it itself (concatenate, flatten, linear, sum_n).
  static constexpr int kAnyNumber = -1;
  virtual int arity() const { return kAnyNumber; }

  // Types of the outputs; throws UserError "[name] (Cn) rule: what was given" when a constraint
  // fails. Marks are joined by Graph::add unless sets_marks().
  virtual std::vector<TensorType> infer(const InferContext& context) const = 0;
  virtual bool sets_marks() const { return false; }

  // One cotangent per input (no value where none is needed). `differentiable` is false for ops
  // without a gradient: integer ops, predicates and backward ops themselves.
  virtual bool differentiable() const { return false; }
  virtual std::vector<Value> vjp(const VjpContext& context) const;

  // Gradients, which are summed over the uses of a value, and of parameters over micro-batches: the
  // op with one operand more, the last, to which output `output` is added and in whose bytes the
  // sum may be made. An op that has that operand gives itself; null: there is none.
  virtual std::shared_ptr<const Op> adding(int output) const;

  // Composites: appends the definition in primitives (or other composites) and returns the outputs.
  virtual std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const;

  // Writes this op down for one rank of a tensor-parallel group: see ir/placement.h. By default it
  // wants all operands whole and equal on all ranks.
  virtual void split(PlacementContext& context) const;

  // Writes this op down for tokens that continue a sequence: see ir/continuation.h. By default it
  // stays as it is: what it makes of a token depends neither on the token's place nor on others.
  virtual std::vector<Value> continue_sequence(Continuation& continuation) const;

  // Writes this op down for rows of several documents, none of which knows of another: see
  // ir/document_context.h. By default it stays as it is, by the same reason.
  virtual std::vector<Value> restart_at_documents(DocumentContext& context) const;

  virtual Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const;

  // What ranks exchange; nothing: no bytes move between them.
  virtual std::optional<Communication> communication() const { return std::nullopt; }
  // Where it runs: by default an exchange on the lane of its traffic, all else on compute.
  virtual Lane lane() const;

  // Sums of products, which matrix units compute: a result costs many operations an element, so
  // that it is worth keeping where cheaper ones are computed again.
  virtual bool contracts() const { return false; }

  // Storage. Where the outputs lie (those of views: where the operand does).
  virtual MemoryTier memory_tier() const { return MemoryTier::kNear; }
  // Outputs that are views of input 0: element offset of each output, empty if none are.
  virtual std::vector<int64_t> view_offsets() const { return {}; }
  // Inputs that are placed into the one output: element offset of each input, empty if none are.
  virtual std::vector<int64_t> placement_offsets() const { return {}; }
  // Pairs that a kernel handles correctly when they share storage.
  virtual std::vector<InPlacePair> in_place_pairs() const { return {}; }
  // Outputs of `forward` (a node of the op that this op differentiates) which this op computes
  // again anyway: pairs (output of forward, output of this). Lets canonicalize drop the forward
  // node.
  virtual std::vector<std::pair<int, int>> subsumes(const Op& forward) const;

  // "epsilon=1e-05": every attribute, from fields().
  virtual std::string attributes() const = 0;

  // Two ops are equal when their keys are: name and attributes, numbers printed exactly.
  std::string key() const { return cat(name(), "{", attributes(), "}"); }
  friend bool operator==(const Op& a, const Op& b) { return a.key() == b.key(); }
};

using OpPtr = std::shared_ptr<const Op>;

namespace detail {
inline std::string attribute_text(std::string_view v) { return std::string(v); }
inline std::string attribute_text(const TensorType& v) { return to_string(v); }
inline std::string attribute_text(DType v) { return std::string(name(v)); }
inline std::string attribute_text(AxisSet v) { return cat(v.bits); }
inline std::string attribute_text(const Shape& v) { return to_string(v); }
inline std::string attribute_text(const std::vector<double>& v) {
  return cat("[", join(v, ", "), "]");
}
template <class T>
requires std::is_arithmetic_v<T> std::string attribute_text(T v) { return cat(v); }
template <class T>
std::string attribute_text(const std::vector<T>& v) {
  std::vector<std::string> parts;
  for (const T& x : v) parts.push_back(attribute_text(x));
  return cat("[", join(parts, ", "), "]");
}
}  // namespace detail

// Base of every op. Self::fields() returns std::make_tuple of std::pair<const char*, value>;
// printing, equality and hashing come from that one list.
template <class Self>
class OpOf : public Op {
 public:
  std::string attributes() const final {
    std::string text;
    std::apply(
        [&](const auto&... field) {
          ((text +=
            cat(text.empty() ? "" : ", ", field.first, "=", detail::attribute_text(field.second))),
           ...);
        },
        static_cast<const Self&>(*this).fields());
    return text;
  }
};

template <class T>
std::pair<const char*, T> field(const char* name, T value) {
  return {name, std::move(value)};
}

namespace detail {
[[noreturn]] void refuse(const Op& op, const char* label, const std::string& message);
}

// Throws UserError "[rms_norm] (C2) w must have shape [D]: D = 4096, w is [4095]" unless `ok`. The
// message is put together only then: graphs ask this of every node, again behind every pass.
template <class... Parts>
void require(bool ok, const Op& op, const char* label, const Parts&... message) {
  if (!ok) detail::refuse(op, label, cat(detail::attribute_text(message)...));
}

// Of an op that adds a result to an operand (Op::adding): both must be alike.
void require_sum(const Op& op, const char* label, const TensorType& sum, const TensorType& result);

}  // namespace tessera
