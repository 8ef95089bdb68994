#pragma once
#include "ir/graph.h"

namespace tessera {

// Where one parameter lies in a flat unit: `offset` elements from its begin.
struct UnitMember {
  int64_t offset = 0;
  Shape shape;
};

// A flat buffer [n] seen as tensors at given offsets: all outputs are views.
class Unflatten final : public OpOf<Unflatten> {
 public:
  explicit Unflatten(std::vector<UnitMember> members) : members_(std::move(members)) {}
  const std::vector<UnitMember>& members() const { return members_; }
  std::string_view name() const override { return "unflatten"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<int64_t> view_offsets() const override;
  Cost cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  auto fields() const {
    std::vector<int64_t> offsets;
    std::vector<Shape> shapes;
    for (const UnitMember& m : members_) {
      offsets.push_back(m.offset);
      shapes.push_back(m.shape);
    }
    return std::make_tuple(field("offsets", offsets), field("shapes", shapes));
  }

 private:
  std::vector<UnitMember> members_;
};

// The reverse: tensors of one dtype placed into a flat buffer of `size` elements, zero elsewhere. A
// plan computes the operands in place; nothing is copied.
class Flatten final : public OpOf<Flatten> {
 public:
  Flatten(int64_t size, std::vector<int64_t> offsets) : size_(size), offsets_(std::move(offsets)) {}
  int64_t size() const { return size_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  std::string_view name() const override { return "flatten"; }
  Tier tier() const override { return Tier::kPrimitive; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<int64_t> placement_offsets() const override { return offsets_; }
  Cost cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  auto fields() const { return std::make_tuple(field("size", size_), field("offsets", offsets_)); }

 private:
  int64_t size_;
  std::vector<int64_t> offsets_;
};

}  // namespace tessera
