#include "passes/kv_cache.h"

#include "ir/continuation.h"
#include "ir/rewriter.h"

namespace tessera {
namespace {

class Continuer final : public Continuation {
 public:
  Continuer(const Graph& from, const KvCache& cache)
      : from_(from), to_(from.mesh()), rewriter_(from, to_), cache_(cache) {}

  Graph run() {
    start_ = to_.input("start", InputKind::kArgument, {{cache_.batch}, DType::kI32});
    row_ = to_.input("row", InputKind::kArgument, {{cache_.batch}, DType::kI32});
    for (const Node& node : from_.nodes()) {
      if (node.op->tier() == Tier::kInput) {
        rewriter_.copy(node);
        continue;
      }
      node_ = &node;
      rewriter_.enter(node);
      std::vector<Value> outputs = node.op->continue_sequence(*this);
      for (size_t k = 0; k < outputs.size(); ++k) rewriter_.map(node.outputs[k], outputs[k]);
    }
    rewriter_.finish();
    return std::move(to_);
  }

  const Node& node() const override { return *node_; }
  Graph& graph() override { return to_; }
  Value operand(size_t i) override { return rewriter_(node_->inputs[i]); }
  Value start() override { return start_; }
  Value row() override { return row_; }
  int64_t rows() const override { return cache_.rows; }
  int64_t capacity() const override { return cache_.capacity; }
  Value state(const std::string& name, const TensorType& type) override {
    return to_.input(slot(name), InputKind::kState, type);
  }
  void update(const std::string& name, Value value) override { to_.update(slot(name), value); }

 private:
  std::string slot(const std::string& name) const { return cat(name, ".", node_->scope); }

  const Graph& from_;
  Graph to_;
  Rewriter rewriter_;
  KvCache cache_;
  Value start_, row_;
  const Node* node_ = nullptr;
};

}  // namespace

Graph kv_cache(const Graph& graph, const KvCache& cache) { return Continuer(graph, cache).run(); }

}  // namespace tessera
