#include "models/build_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "models/hugging_face_tensor.h"
#include "models/model_family.h"

namespace tessera {
namespace {

struct Vector {
  ModelType type;
  std::array<int64_t, 6> shape;  // vocabulary, width, layers, heads, key/value heads, intermediate
  int64_t parameters;
};

constexpr auto kLlama = ModelType::kLlamaV2;
constexpr auto kNeox = ModelType::kGptNeox;

// The graphs of the published and of the usual shapes have the parameters that the formulas count.
TEST(BuildModel, HasTheParametersThatAreCounted) {
  const Vector vectors[] = {
      {kLlama, {50432, 4096, 32, 32, 32, 11008}, 6889410560},
      {kLlama, {50432, 4096, 32, 32, 8, 14336}, 7392727040},
      {ModelType::kMistral, {32768, 4096, 32, 32, 8, 14336}, 7248023552},
      {kLlama, {50432, 5120, 40, 40, 40, 13824}, 13204608000},
      {kLlama, {50432, 8192, 80, 64, 8, 28672}, 69278638080},
      {kLlama, {32000, 4096, 32, 32, 32, 11008}, 6738415616},
      {kLlama, {32000, 5120, 40, 40, 40, 13824}, 13015864320},
      {kLlama, {32000, 8192, 80, 64, 8, 28672}, 68976648192},
      {ModelType::kLlamaV3, {50432, 2048, 16, 32, 2, 8192}, 1154549760},
      {ModelType::kLlamaV3, {50432, 3072, 28, 24, 2, 8192}, 2996481024},
      {ModelType::kLlamaV3, {50432, 2048, 16, 32, 8, 8192}, 1179715584},
      {ModelType::kLlamaV3, {50432, 3072, 28, 24, 8, 11008}, 3855264768},
      {ModelType::kLlamaV3, {128256, 4096, 32, 32, 8, 14336}, 8030261248},
      {kLlama, {32000, 8192, 80, 64, 8, 28762}, 69153595392},
      {kLlama, {50432, 5120, 40, 40, 40, 13760}, 13165286400},
      {kLlama, {50432, 8192, 80, 64, 64, 28672}, 78673879040},
      {kNeox, {50432, 768, 12, 12, 12, 0}, 162519552},
      {kNeox, {50432, 6144, 44, 64, 64, 0}, 20554567680},
      {kNeox, {50432, 8192, 80, 64, 64, 0}, 65259323392},
      {ModelType::kQwen2, {152064, 3584, 28, 28, 4, 18944}, 7615616512},  // as published
      {ModelType::kQwen3, {151936, 4096, 36, 32, 8, 12288}, 8190735360},  // as published
  };
  for (const Vector& v : vectors) {
    ModelConfig c = family_defaults(v.type);
    std::tie(c.vocab_size, c.hidden_width, c.num_layers, c.num_heads, c.num_key_value_heads,
             c.intermediate_size) = std::tuple_cat(v.shape);
    derive_shape(c);
    check(c);
    EXPECT_EQ(parameter_count(c), v.parameters) << name(v.type);
    EXPECT_EQ(build_model(c, 1, 8, ModelHead::kTraining).parameter_count(), v.parameters);
  }
}

// Heads whose width is their own, in the graph and in the formula.
TEST(BuildModel, HasTheParametersOfQwen3) {
  for (const char* preset : {"qwen3_0.6b", "qwen3_4b"}) {
    ModelConfig c = preset_by_name(preset);
    EXPECT_EQ(c.head_dim, 128);
    EXPECT_NE(c.head_dim * c.num_heads, c.hidden_width);
    EXPECT_EQ(build_model(c, 1, 8, ModelHead::kLoss).parameter_count(), parameter_count(c));
    c.attention_bias = c.attention_output_bias = true;
    EXPECT_EQ(build_model(c, 1, 8, ModelHead::kLoss).parameter_count(), parameter_count(c));
  }
}

TEST(BuildModel, HasTheParametersOfGpt2) {
  auto count = [](const ModelConfig& c) {
    EXPECT_EQ(parameter_count(c), build_model(c, 1, 8, ModelHead::kLoss).parameter_count());
    return parameter_count(c);
  };
  EXPECT_EQ(count(preset_by_name("gpt2")), 124439808);
  EXPECT_EQ(count(preset_by_name("gpt2_medium")), 354823168);
  EXPECT_EQ(count(preset_by_name("gpt2_large")), 774030080);
  EXPECT_EQ(count(preset_by_name("gpt2_xl")), 1557611200);
  ModelConfig scratch = preset_by_name("gpt2");
  scratch.bias = false;
  EXPECT_EQ(count(scratch), 124337664);
  ModelConfig defaults = family_defaults(ModelType::kGpt2);
  defaults.bias = true;
  EXPECT_EQ(count(defaults), 125360640);
}

ModelConfig tiny(ModelType type) {
  ModelConfig c = family_defaults(type);
  c.vocab_size = 37;
  c.hidden_width = 32;
  c.num_layers = 2;
  c.num_heads = c.num_key_value_heads = 4;
  c.intermediate_size = 48;
  c.max_context_width = 16;
  derive_shape(c);
  check(c);
  return c;
}

std::vector<std::string> names_of(const ModelGraph& model, const std::string& layer) {
  std::vector<std::string> names;
  for (const Parameter& p : model.parameters) {
    bool of_layer = p.unit.starts_with("layers.");
    if (!of_layer || p.unit == layer) names.push_back(p.name);
  }
  std::ranges::sort(names);
  return names;
}

// Passes treat layers by their numbers, people read names.
TEST(BuildModel, NodesOfALayerKnowItsNumber) {
  for (const ModelFamily* family : kModelFamilies) {
    if (!family->build) continue;
    const ModelType type = family->type;
    std::set<int32_t> seen;
    const ModelGraph model = build_model(tiny(type), 1, 8, ModelHead::kTraining);
    for (const Node& node : model.graph.nodes()) {
      bool of_layer = node.layer != kNoLayer;
      EXPECT_EQ(of_layer, node.scope.starts_with("layers.")) << name(type) << " " << node.scope;
      if (!of_layer) continue;
      EXPECT_TRUE(cat(node.scope, ".").starts_with(cat("layers.", node.layer, "."))) << node.scope;
      seen.insert(node.layer);
    }
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1})) << name(type);
  }
}

TEST(BuildModel, ParametersAreCalledAsInACheckpoint) {
  ModelConfig gpt2 = tiny(ModelType::kGpt2);
  gpt2.bias = true;
  EXPECT_EQ(
      names_of(build_model(gpt2, 1, 8, ModelHead::kLoss), "layers.1"),
      (std::vector<std::string>{
          "transformer.h.1.attn.c_attn.bias", "transformer.h.1.attn.c_attn.weight",
          "transformer.h.1.attn.c_proj.bias", "transformer.h.1.attn.c_proj.weight",
          "transformer.h.1.ln_1.bias", "transformer.h.1.ln_1.weight", "transformer.h.1.ln_2.bias",
          "transformer.h.1.ln_2.weight", "transformer.h.1.mlp.c_fc.bias",
          "transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_proj.bias",
          "transformer.h.1.mlp.c_proj.weight", "transformer.ln_f.bias", "transformer.ln_f.weight",
          "transformer.wpe.weight", "transformer.wte.weight"}));
  EXPECT_EQ(
      names_of(build_model(tiny(kNeox), 1, 8, ModelHead::kLoss), "layers.0"),
      (std::vector<std::string>{
          "embed_out.weight", "gpt_neox.embed_in.weight", "gpt_neox.final_layer_norm.bias",
          "gpt_neox.final_layer_norm.weight", "gpt_neox.layers.0.attention.dense.bias",
          "gpt_neox.layers.0.attention.dense.weight",
          "gpt_neox.layers.0.attention.query_key_value.bias",
          "gpt_neox.layers.0.attention.query_key_value.weight",
          "gpt_neox.layers.0.input_layernorm.bias", "gpt_neox.layers.0.input_layernorm.weight",
          "gpt_neox.layers.0.mlp.dense_4h_to_h.bias", "gpt_neox.layers.0.mlp.dense_4h_to_h.weight",
          "gpt_neox.layers.0.mlp.dense_h_to_4h.bias", "gpt_neox.layers.0.mlp.dense_h_to_4h.weight",
          "gpt_neox.layers.0.post_attention_layernorm.bias",
          "gpt_neox.layers.0.post_attention_layernorm.weight"}));
  ModelGraph qwen = build_model(tiny(ModelType::kQwen2), 1, 8, ModelHead::kLoss);
  for (const char* of : {"q_proj", "k_proj", "v_proj"})
    EXPECT_FALSE(qwen.parameter(cat("model.layers.1.self_attn.", of, ".bias")).decay);
  EXPECT_THROW(qwen.parameter("model.layers.1.self_attn.o_proj.bias"), InternalError);
  ModelGraph normed = build_model(tiny(ModelType::kQwen3), 1, 8, ModelHead::kLoss);
  for (const char* of : {"q_norm", "k_norm"}) {
    const Parameter& p = normed.parameter(cat("model.layers.1.self_attn.", of, ".weight"));
    EXPECT_EQ(p.shape, Shape{8}) << "of a head";
    EXPECT_EQ(p.init.kind, InitKind::kOnes);
    EXPECT_FALSE(p.decay);
  }
  EXPECT_THROW(normed.parameter("model.layers.1.self_attn.q_proj.bias"), InternalError);
}

TEST(BuildModel, CheckpointsStoreWholeMatrices) {
  auto stored = [](const ModelConfig& c, const std::string& name) {
    ModelGraph m = build_model(c, 1, 8, ModelHead::kLoss);
    HuggingFaceTensor t = hugging_face_tensor(c.model_type, m.parameter(name));
    return cat(to_string(m.parameter(name).shape), " ", to_string(t.shape),
               t.transposed ? " transposed" : "");
  };
  ModelConfig gpt2 = tiny(ModelType::kGpt2);
  gpt2.bias = true;
  EXPECT_EQ(stored(gpt2, "transformer.h.0.attn.c_attn.weight"), "[3, 32, 32] [32, 96] transposed");
  EXPECT_EQ(stored(gpt2, "transformer.h.0.attn.c_attn.bias"), "[3, 32] [96]");
  EXPECT_EQ(stored(gpt2, "transformer.h.0.mlp.c_fc.weight"), "[128, 32] [32, 128] transposed");
  EXPECT_EQ(stored(gpt2, "transformer.wpe.weight"), "[16, 32] [16, 32]");
  const std::string fused = "gpt_neox.layers.0.attention.query_key_value.";
  EXPECT_EQ(stored(tiny(kNeox), fused + "weight"), "[4, 3, 8, 32] [96, 32]");
  EXPECT_EQ(stored(tiny(kNeox), fused + "bias"), "[4, 3, 8] [96]");
  EXPECT_EQ(stored(tiny(kLlama), "model.layers.0.mlp.up_proj.weight"), "[48, 32] [48, 32]");
}

TEST(BuildModel, FirstValues) {
  ModelConfig c = tiny(ModelType::kGpt2);
  c.bias = true;
  c.initializer_range = 0.3;
  for (const Parameter& p : build_model(c, 1, 8, ModelHead::kLoss).parameters) {
    bool norm = p.name.find(".ln_") != std::string::npos;
    if (p.name.ends_with(".bias")) {
      EXPECT_EQ(p.init.kind, InitKind::kZeros) << p.name;
    } else if (norm) {
      EXPECT_EQ(p.init.kind, InitKind::kOnes) << p.name;
    } else {
      double expected = p.name.ends_with("c_proj.weight") ? 0.3 / std::sqrt(4.0) : 0.3;
      EXPECT_EQ(p.init.kind, InitKind::kNormal) << p.name;
      EXPECT_DOUBLE_EQ(p.init.standard_deviation, expected) << p.name;
    }
    EXPECT_EQ(p.decay, !norm && !p.name.ends_with(".bias")) << p.name;
  }
}

TEST(BuildModel, DropsOnlyWhileItTrains) {
  ModelConfig c = tiny(ModelType::kGpt2);
  auto count = [&](ModelHead head) {
    ModelGraph m = build_model(c, 1, 8, head);
    EXPECT_EQ(m.graph.find_input("row_keys").id >= 0, head == ModelHead::kTraining);
    int drops = 0;
    std::vector<std::string> keys;
    for (const Node& node : m.graph.nodes()) {
      bool attention = node.op->name() == "attention";
      if (node.op->name() == "dropout" || (attention && node.inputs.size() > 3)) {
        ++drops;
        keys.push_back(node.op->key());
      }
    }
    std::ranges::sort(keys);
    EXPECT_EQ(std::ranges::unique(keys).size(), 0u) << "every dropout has numbers of its own";
    return drops;
  };
  EXPECT_EQ(count(ModelHead::kTraining), 1 + 3 * 2);
  for (ModelHead head : {ModelHead::kLoss, ModelHead::kLogits, ModelHead::kNext})
    EXPECT_EQ(count(head), 0);
  c.resid_pdrop = c.embd_pdrop = c.attn_pdrop = 0;
  EXPECT_FALSE(build_model(c, 1, 8, ModelHead::kTraining).graph.find_input("row_keys"));
}

TEST(BuildModel, RefusesWhatHasNoGraph) {
  EXPECT_THROW(build_model(tiny(ModelType::kMixtral), 1, 8, ModelHead::kLoss), InternalError);
  EXPECT_THROW(build_model(tiny(ModelType::kGpt2), 1, 17, ModelHead::kLoss), InternalError);
}

}  // namespace
}  // namespace tessera
