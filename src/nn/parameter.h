#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "nn/lora.h"

namespace tessera {

enum class InitKind { kNormal, kUniform, kOnes, kZeros };

// First values of a parameter: element k of the parameter is drawn from (seed, parameter name, k),
// normal or uniform around 0, or a constant. So they depend on no sharding and no order.
struct Init {
  InitKind kind = InitKind::kNormal;
  double standard_deviation = 0.02;
};

// A tensor of a model's weights.
struct Parameter {
  std::string name;  // as in a Hugging Face checkpoint: "model.layers.0.self_attn.q_proj.weight"
  Value value;       // its input of kind kParameter, f32
  Shape shape;
  std::string unit;  // sharding unit: "embed", "layers.0", "head"
  // Logical axis of every dim, for tensor parallelism: vocab, embed, heads, kv_heads, mlp, or "".
  std::vector<std::string> axes;
  Init init;
  bool decay = true;      // weight decay applies: matrices and embeddings
  bool trainable = true;  // false: frozen, a constant that is sharded and saved like the others
  bool adapter = false;   // added to the model by its Lora
};

// What a model file returns: the forward pass of one device and the parameters that it declared.
struct ModelGraph {
  Graph graph;
  std::vector<Parameter> parameters;
  Value square_sum;  // what a z-loss is made of; of a head without a loss no value

  // What layers are written down with: given before the first.
  Lora lora;
  Value row_keys;  // of dropout (ops/composite/dropout.h); where there is none no value

  std::vector<std::string> linear_layers;  // names of all that can be adapted

  bool adapted() const { return lora.rank > 0; }
  int64_t parameter_count() const;
  const Parameter& parameter(std::string_view name) const;
};

// Declares parameters under a name prefix and a sharding unit while a model is written down.
class ParameterScope {
 public:
  ParameterScope(ModelGraph& model, std::string prefix, std::string unit)
      : model_(model), prefix_(std::move(prefix)), unit_(std::move(unit)) {}
  // Matrices "PREFIX.NAME.weight", [out, in] or a stack of such, normal(0, standard_deviation),
  // with decay.
  Value matrix(const std::string& name, Shape shape, std::vector<std::string> axes,
               double standard_deviation) const;
  // "PREFIX.NAME.bias", zeros, without decay.
  Value bias(const std::string& name, Shape shape, std::vector<std::string> axes) const;
  // A norm's weight "PREFIX.NAME.weight" [width], ones, without decay.
  Value norm_weight(const std::string& name, int64_t width) const;

  // Of a linear layer "PREFIX.NAME" that is adapted (nn/lora.h): "PREFIX.NAME.lora_A.weight"
  // [rank, in] and "PREFIX.NAME.lora_B.weight", which is the layer's matrix with `rank` in the
  // place of `in`. With decay.
  Value lora_a(const std::string& name, int64_t in, const std::string& in_axis) const;
  Value lora_b(const std::string& name, Shape shape, std::vector<std::string> axes) const;

  Graph& graph() const { return model_.graph; }
  ModelGraph& model() const { return model_; }
  // "PREFIX.NAME"
  std::string whole_name(const std::string& name) const;

 private:
  Value declare(Parameter parameter) const;

  ModelGraph& model_;
  std::string prefix_, unit_;
};

}  // namespace tessera
