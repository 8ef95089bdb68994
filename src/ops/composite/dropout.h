#pragma once
#include "ir/placement.h"
#include "ops/primitive/random.h"

namespace tessera {

// Dropout (Srivastava et al. 2014, with the inverted scale): each element of x is 0 with
// probability p in [0, 1), the others are divided by 1 - p. p counts in multiples of 2^-16.
//
// The mask follows from three things: row_keys[b] (i64 [B], an argument of the program, see
// dropout_row_key()), the name of the stream, which no other op of the model has, and the position
// of the element in the whole row x[b]. So it is the same for any number of ranks, micro-batches,
// threads and kernels, when it is computed again, and in the gradient, which is this op on dy.
//
// x is a float [B, ...], split or not (see RandomBits for the part and its operand `begin`).
// Computed in f32, rounded once.
class Dropout final : public OpOf<Dropout> {
 public:
  Dropout(double p, std::string stream, TensorPart part = {})
      : p_(p), stream_(std::move(stream)), part_(part) {}
  double p() const { return p_; }
  const std::string& stream() const { return stream_; }
  const TensorPart& part() const { return part_; }
  std::string_view name() const override { return "dropout"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return part_.whole() ? 2 : 3; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (x, row_keys[, begin])
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(field("p", p_), field("stream", stream_), field("dim", part_.dim),
                           field("size", part_.size));
  }

 private:
  double p_;
  std::string stream_;
  TensorPart part_;
};

// An element is kept where its bits (see RandomBits) are at least the threshold, p * 2^16 rounded
// but at most 65535, and then multiplied by the scale, 1 / (1 - threshold * 2^-16).
int32_t dropout_threshold(double p);
double dropout_scale(double p);
// That on x, in x's dtype; bits i32 of its shape.
Value keep_by_bits(Graph& graph, Value x, Value bits, double p);

// The key of a row of a batch: of the job's seed, the step and the row's sample number in the job.
// Keys are in [0, 2^53), which every backend's arithmetic can hold.
int64_t dropout_row_key(uint64_t seed, uint64_t step, uint64_t sample);

// The same value where p is 0.
Value dropout(Graph& graph, Value x, Value row_keys, double p, std::string stream);

}  // namespace tessera
