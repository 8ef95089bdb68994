#pragma once
#include <string>

#include "base/random_lines.h"
#include "ir/placement.h"

namespace tessera {

// bits[b, i...] = 16 random bits of (row_keys[b], stream, i...), as i32 in [0, 65536): every row
// has a key of its own, and a row depends on nothing but its key, the stream's name and its shape.
// Not on the batch around it, nor on which ranks have which part of it.
//
// row_keys is i64 [B]; `row` is the shape of a row, a part of the whole one along part.dim >= 1
// (counted in the dims of the result) beginning at the operand `begin`, an i32 scalar that is there
// unless the part is the whole. Element i of a row is random_bits16(key, stream_of(stream), n), n
// its number in the whole row as RandomLines counts (base/random_lines.h).
//
// StableHLO's rng_bit_generator draws from a state in order; this op is the same Philox, asked for
// by index.
class RandomBits final : public OpOf<RandomBits> {
 public:
  RandomBits(Shape row, std::string stream, TensorPart part = {})
      : row_(std::move(row)), stream_(std::move(stream)), part_(part) {}
  const Shape& row() const { return row_; }
  const std::string& stream() const { return stream_; }
  const TensorPart& part() const { return part_; }
  std::string_view name() const override { return "random_bits"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return part_.whole() ? 1 : 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  auto fields() const {
    return std::make_tuple(field("row", row_), field("stream", stream_), field("dim", part_.dim),
                           field("size", part_.size));
  }

 private:
  Shape row_;
  std::string stream_;
  TensorPart part_;
};

// bits as above; `begin` is no value where the part is the whole.
Value random_bits(Graph& graph, Value row_keys, Value begin, Shape row, std::string stream,
                  TensorPart part);

}  // namespace tessera
