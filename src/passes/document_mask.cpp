#include "passes/document_mask.h"

#include "ir/document_context.h"
#include "ir/rewriter.h"

namespace tessera {
namespace {

class Restarter final : public DocumentContext {
 public:
  explicit Restarter(const Graph& from) : from_(from), to_(from.mesh()), rewriter_(from, to_) {}

  Graph run() {
    const Value tokens = from_.find_input("tokens");
    starts_ = to_.input(kDocumentStarts, InputKind::kArgument, from_.type(tokens));
    for (const Node& node : from_.nodes()) {
      if (node.op->tier() == Tier::kInput) {
        rewriter_.copy(node);
        continue;
      }
      node_ = &node;
      rewriter_.enter(node);
      std::vector<Value> outputs = node.op->restart_at_documents(*this);
      for (size_t k = 0; k < outputs.size(); ++k) rewriter_.map(node.outputs[k], outputs[k]);
    }
    rewriter_.finish();
    return std::move(to_);
  }

  const Node& node() const override { return *node_; }
  Graph& graph() override { return to_; }
  Value operand(size_t i) override { return rewriter_(node_->inputs[i]); }
  Value starts() override { return starts_; }

 private:
  const Graph& from_;
  Graph to_;
  Rewriter rewriter_;
  Value starts_;
  const Node* node_ = nullptr;
};

}  // namespace

Graph document_mask(const Graph& graph) { return Restarter(graph).run(); }

}  // namespace tessera
