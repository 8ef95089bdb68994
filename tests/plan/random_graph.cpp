#include "tests/plan/random_graph.h"

#include <algorithm>

#include "base/random.h"
#include "ops/composite/sum_n.h"
#include "ops/move/far_tier.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "tests/plan/tag_kernels.h"

namespace tessera {
namespace {

class Builder {
 public:
  explicit Builder(uint64_t seed) : seed_(seed) {}

  Graph build() {
    for (size_t i = 0; i < 1 + below(3); ++i)
      values_.push_back(g_.input(cat("x", i), InputKind::kArgument, random_type()));
    for (size_t i = 0; i < 1 + below(3); ++i) {
      values_.push_back(g_.input(cat("s", i), InputKind::kState, random_type()));
      states_.push_back(values_.back());
    }
    size_t nodes = 4 + below(30);
    for (size_t i = 0; i < nodes; ++i) add_node();
    finish();
    return std::move(g_);
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_below(seed_, 0, draws_++, n)); }
  bool chance(size_t one_in) { return below(one_in) == 0; }

  TensorType random_type() {
    static constexpr int64_t kSizes[] = {6, 8, 24, 24, 48};
    return {{kSizes[below(5)]}, chance(3) ? DType::kBF16 : DType::kF32};
  }

  // Mostly recent values, so that chains grow.
  Value any() {
    return chance(2) ? values_[below(values_.size())]
                     : values_[values_.size() - 1 - below(std::min<size_t>(4, values_.size()))];
  }

  // A value of the same type, if there is another one.
  Value like(Value v) {
    std::vector<Value> candidates;
    for (Value c : values_) {
      if (g_.type(c) == g_.type(v)) candidates.push_back(c);
    }
    return candidates[below(candidates.size())];
  }

  void add_all(const std::vector<Value>& made) {
    values_.insert(values_.end(), made.begin(), made.end());
  }

  void add_node() {
    Scope scope(g_, cat("n", g_.nodes().size()));
    Value x = any();
    switch (below(14)) {
      case 0:
      case 1: return values_.push_back(add(g_, x, like(x)));
      case 2: return values_.push_back(mul(g_, like(x), x));
      case 3: return values_.push_back(unary(g_, UnaryKind::kNeg, x));
      case 4: return values_.push_back(reshape(g_, x, other_shape(x)));
      case 5: return add_slice(x);
      case 6: return add_unflatten(x);
      case 7: return add_flatten(x);
      case 8: return add_sum(x);
      case 9:
        return chance(2) ? values_.push_back(convert(g_, x, other_dtype(x))) : add_transpose(x);
      case 10: return values_.push_back(chance(2) ? offload(g_, x) : fetch(g_, x));
      case 11:
      case 12: return values_.push_back(g_.add_one(std::make_shared<Exchange>(chance(3)), {x}));
      default: return add_all(g_.add(std::make_shared<SumAndDifference>(), {x, like(x)}));
    }
  }

  DType other_dtype(Value x) {
    return g_.type(x).dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
  }

  Shape other_shape(Value x) {
    int64_t n = g_.type(x).elements();
    if (g_.shape(x).size() == 2) return {n};
    return n % 2 == 0 ? Shape{2, n / 2} : Shape{1, n};
  }

  void add_slice(Value x) {
    int64_t size = g_.shape(x)[0];
    auto begin = static_cast<int64_t>(below(static_cast<size_t>(size)));
    auto end = begin + 1 + static_cast<int64_t>(below(static_cast<size_t>(size - begin)));
    values_.push_back(slice(g_, x, 0, begin, end));
  }

  void add_transpose(Value x) {
    if (g_.shape(x).size() == 2) values_.push_back(transpose(g_, x, {1, 0}));
  }

  // Two members anywhere: apart, next to each other or one over the other.
  void add_unflatten(Value x) {
    int64_t n = g_.type(x).elements();
    if (g_.shape(x).size() != 1 || n < 4) return;
    std::vector<UnitMember> members;
    for (int k = 0; k < 2; ++k) {
      auto begin = static_cast<int64_t>(below(static_cast<size_t>(n - 2)));
      members.push_back({begin, {2 * ((n - begin) / 2 > 3 && chance(2) ? 3 : 1)}});
    }
    if (chance(3)) members = {{0, {n}}};
    add_all(g_.add(std::make_shared<Unflatten>(members), {x}));
  }

  // Up to three operands of one dtype in any order, with and without gaps; the same one twice at
  // times.
  void add_flatten(Value x) {
    std::vector<Value> parts{x};
    size_t more = below(3);
    for (size_t i = 0; i < more; ++i) {
      Value v = any();
      if (g_.type(v).dtype == g_.type(x).dtype) parts.push_back(v);
    }
    std::vector<int64_t> offsets;
    int64_t end = 0;
    for (Value v : parts) {
      if (chance(3)) end += 2;
      offsets.push_back(end);
      end += g_.type(v).elements();
    }
    if (end > 400) return;
    if (chance(2)) {
      std::reverse(parts.begin(), parts.end());
      std::reverse(offsets.begin(), offsets.end());
    }
    values_.push_back(g_.add_one(
        std::make_shared<Flatten>(end + 2 * static_cast<int64_t>(below(3)), offsets), parts));
  }

  void add_sum(Value x) {
    std::vector<Value> terms{x};
    for (size_t i = 0; i < 1 + below(3); ++i) terms.push_back(like(x));
    values_.push_back(g_.add_one(std::make_shared<SumN>(), terms));
  }

  // A flatten of what fits into a buffer like s, in that order; s itself if nothing does.
  Value gradient_like(Value s) {
    int64_t size = g_.type(s).elements(), end = 0;
    std::vector<Value> parts;
    std::vector<int64_t> offsets;
    for (int tries = 0; tries < 6; ++tries) {
      Value v = any();
      if (g_.type(v).dtype != g_.type(s).dtype || end + g_.type(v).elements() > size) continue;
      parts.push_back(v);
      offsets.push_back(end);
      end += g_.type(v).elements() + 2 * static_cast<int64_t>(below(2));
    }
    if (parts.empty() || g_.shape(s).size() != 1) return s;
    return g_.add_one(std::make_shared<Flatten>(size, offsets), parts);
  }

  void finish() {
    for (Value s : states_) {
      if (chance(4)) continue;
      const GraphInput* slot = nullptr;
      for (const GraphInput& input : g_.inputs()) {
        if (input.value == s) slot = &input;
      }
      g_.update(slot->name, chance(2) ? like(s) : gradient_like(s));
    }
    for (size_t i = 0; i < below(3); ++i) g_.update(cat("new", i), any());
    for (size_t i = 0; i < 1 + below(4); ++i)
      g_.output(cat("y", i), chance(4) ? values_[below(values_.size())] : any());
  }

  uint64_t seed_, draws_ = 0;
  Graph g_;
  std::vector<Value> values_, states_;
};

}  // namespace

Graph random_graph(uint64_t seed) { return Builder(seed).build(); }

}  // namespace tessera
