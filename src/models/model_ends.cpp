#include "models/model_ends.h"

#include "ops/composite/cross_entropy.h"
#include "ops/composite/dropout.h"
#include "ops/composite/linear.h"
#include "ops/primitive/shaping.h"

namespace tessera {

ModelGraph begin_model(const ModelConfig& config) {
  ModelGraph model;
  model.lora = config.lora;
  return model;
}

Value token_input(ModelGraph& model, int64_t batch, int64_t length) {
  return model.graph.input("tokens", InputKind::kArgument, {{batch, length}, DType::kI32});
}

ModelConfig for_head(ModelConfig config, ModelHead head) {
  if (head == ModelHead::kTraining) return config;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = config.lora.dropout = 0;
  return config;
}

Value row_keys_input(ModelGraph& model, const ModelConfig& config, int64_t batch) {
  double lora = config.lora.rank > 0 ? config.lora.dropout : 0;
  if (config.resid_pdrop + config.embd_pdrop + config.attn_pdrop + lora == 0) return {};
  model.row_keys = model.graph.input("row_keys", InputKind::kArgument, {{batch}, DType::kI64});
  return model.row_keys;
}

Value drop(Graph& g, Value x, Value row_keys, double p) {
  return dropout(g, x, row_keys, p, g.scope());
}

void write_head(ModelGraph& model, ModelHead head, Value x, Value w) {
  Graph& g = model.graph;
  Scope scope(g, "head");
  int64_t B = g.shape(x)[0], T = g.shape(x)[1];
  x = reshape(g, x, {B * T, g.shape(x)[2]});  // [B*T, E]
  if (head == ModelHead::kLoss || head == ModelHead::kTraining) {
    Value targets = g.input("targets", InputKind::kArgument, {{B, T}, DType::kI32});  // [B, T]
    targets = reshape(g, targets, {B * T});                                           // [B*T]
    CrossEntropySums sums = linear_cross_entropy(g, x, w, targets);                   // [], []
    g.output("loss_sum", sums.loss);
    g.output("token_count", count_targets(g, targets));  // []
    model.square_sum = sums.squares;
    return;
  }
  if (head == ModelHead::kNext) {
    Value position = g.input("position", InputKind::kArgument, {{B}, DType::kI32});
    x = g.add_one(std::make_shared<Gather>(), {x, position});  // [B, E]
  }
  g.output("logits", linear(g, x, w));  // [rows, V]
}

}  // namespace tessera
