// Models and optimizers in checkpoints of torch.distributed.checkpoint, under the names that
// programs give them.
#include "weights/torch_training_state.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/weights/torch_state_fixture.h"

namespace tessera {
namespace {

// All elements of all parameters, in pieces of many lengths.
void expect_whole(const TorchTrainingState& state, bool moments = true) {
  const std::vector<Parameter>& parameters = state.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t n = num_elements(parameters[i].shape);
    for (const std::string kind : {"weight", "exp_avg", "exp_avg_sq"}) {
      if (kind != "weight" && !moments) continue;
      for (int64_t first = 0, length = 1; first < n; first += length, length = length % 23 + 5) {
        std::vector<float> values(static_cast<size_t>(std::min(length, n - first)));
        if (kind == "weight")
          state.read(parameters[i].name, first, values);
        else
          state.read_kept(kind, parameters[i].name, first, values);
        for (size_t e = 0; e < values.size(); ++e)
          ASSERT_EQ(values[e], state_value(i, kind, first + static_cast<int64_t>(e)))
              << parameters[i].name << " " << kind;
      }
    }
  }
}

void expect_all_taken(TorchTrainingState& state) {
  const TorchTrainingState::Optimizer optimizer = state.find_optimizer();
  EXPECT_EQ(optimizer.name, "adamw");
  EXPECT_EQ(optimizer.steps, 7);
  EXPECT_TRUE(optimizer.frozen.empty());
  EXPECT_TRUE(state.left_out().empty()) << join(state.left_out(), ", ");
  expect_whole(state);
}

class TorchTrainingStateTest : public testing::Test {
 protected:
  TorchTrainingState open() const { return {directory_.path(), model_, parameters_of(model_)}; }
  std::string refusal(Caller caller = Caller::current()) const {
    return user_error(
        [&] {
          TorchTrainingState state = open();
          state.find_optimizer();
        },
        caller);
  }
  ScratchDirectory directory_;
  ModelConfig model_ = tiny_model(ModelType::kLlamaV2);
};

// As the model of transformers 5 has it; its files keep the old name.
TEST_F(TorchTrainingStateTest, FindsTheOutputMatrixOfAGptNeoxUnderBothNames) {
  model_ = tiny_model(ModelType::kGptNeox);
  TorchStateForm form;
  form.name = [](const std::string& n) { return n == "embed_out.weight" ? "lm_head.weight" : n; };
  write_torch_state(directory_.path(), model_, form);
  TorchTrainingState state = open();
  EXPECT_EQ(state.find_optimizer().steps, 7);
  expect_whole(state);
  EXPECT_EQ(state.left_out(), std::vector<std::string>());
}

TEST_F(TorchTrainingStateTest, FindsTheModelBehindAnyPrefixAndWrapper) {
  struct Case {
    std::string weights, optimizer;
    std::function<std::string(const std::string&)> name;
  };
  auto same = [](const std::string& n) { return n; };
  auto bare = [](const std::string& n) { return n.starts_with("model.") ? n.substr(6) : n; };
  auto compiled = [](const std::string& n) { return "_orig_mod." + n; };
  auto inside = [](const std::string& n) {
    const size_t layer = n.find(".self_attn");
    return layer == n.npos ? n
                           : n.substr(0, layer) + "._checkpoint_wrapped_module" + n.substr(layer);
  };
  for (const Case& c : {Case{"model.", "optim.", same},
                        {"", "optimizer.", same},
                        {"app.model.", "app.optim.", same},
                        {"model_state.", "optimizer_state.", bare},
                        {"model.", "optim.", compiled},
                        {"module.", "", inside}}) {
    ScratchDirectory directory;
    write_torch_state(directory.path(), model_, {c.weights, c.optimizer, c.name});
    TorchTrainingState state(directory.path(), model_, parameters_of(model_));
    expect_all_taken(state);
  }
}

// What Meta's programs call a parameter, or torchtitan since 0.3.
std::string meta_name(const std::string& n, bool titan) {
  std::string name = n.starts_with("model.") ? n.substr(6) : n;
  const std::string inputs = titan ? "attention.qkv_linear." : "attention.";
  for (auto [ours, meta] : {std::pair<std::string, std::string>{"embed_tokens", "tok_embeddings"},
                            {"lm_head", titan ? "lm_head" : "output"},
                            {"self_attn.q_proj", inputs + "wq"},
                            {"self_attn.k_proj", inputs + "wk"},
                            {"self_attn.v_proj", inputs + "wv"},
                            {"self_attn.o_proj", "attention.wo"},
                            {"mlp.gate_proj", "feed_forward.w1"},
                            {"mlp.down_proj", "feed_forward.w2"},
                            {"mlp.up_proj", "feed_forward.w3"},
                            {"input_layernorm", "attention_norm"},
                            {"post_attention_layernorm", "ffn_norm"}}) {
    if (size_t at = name.find(ours); at != name.npos) name.replace(at, ours.size(), meta);
  }
  return name;
}

bool turns(const std::string& name) {
  return name.find("q_proj") != name.npos || name.find("k_proj") != name.npos;
}

TEST_F(TorchTrainingStateTest, ReadsMetasNamesAndOrderOfRows) {
  for (bool titan : {false, true}) {
    TorchStateForm form{"", "optimizer."};
    form.name = [titan](const std::string& n) { return meta_name(n, titan); };
    form.place = [this](const Parameter& p, int64_t e) {
      return turns(p.name) ? paired_place(p, e, model_.head_dim) : e;
    };
    ScratchDirectory directory;
    write_torch_state(directory.path(), model_, form);
    TorchTrainingState state(directory.path(), model_, parameters_of(model_));
    EXPECT_EQ(state.find_optimizer().kinds, (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
    expect_whole(state);
  }
}

// torchtitan saves weights of three matrices and moments of the one that it computes with: for each
// head of keys the heads of queries that share it, the keys, the values.
TEST_F(TorchTrainingStateTest, ReadsMomentsOfTorchtitansOneMatrix) {
  for (int64_t shared : {1, 2}) {
    model_.hidden_width = 16;
    model_.num_heads = 4;
    model_.num_key_value_heads = 4 / shared;
    model_.head_dim = 4;
    const int64_t head = model_.head_dim, width = model_.hidden_width;
    const std::vector<Parameter> parameters = parameters_of(model_);
    auto is_input = [](const std::string& n) { return turns(n) || n.find("v_proj") != n.npos; };
    TorchStateForm form{"", "optimizer."};
    form.name = [](const std::string& n) { return meta_name(n, true); };
    form.place = [&](const Parameter& p, int64_t e) {
      return turns(p.name) ? paired_place(p, e, head) : e;
    };
    form.trained = [&](const std::string& n) { return !is_input(n); };
    int64_t rows = (shared + 2) * head * model_.num_key_value_heads;
    auto add = [&](TorchStateWriter& writer) {
      for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
        const std::string name =
            cat("optimizer.state.layers.", layer, ".attention.qkv_linear.wqkv.weight.");
        for (const std::string kind : {"exp_avg", "exp_avg_sq"}) {
          writer.tensor(name + kind, {rows, width}, [&, layer, kind](int64_t e) {
            const int64_t row = e / width, group = row / ((shared + 2) * head),
                          slot = row / head % (shared + 2);
            const char which = slot < shared ? 'q' : slot == shared ? 'k' : 'v';
            const std::string own = cat("model.layers.", layer, ".self_attn.", which, "_proj");
            const auto p = std::ranges::find(parameters, own + ".weight", &Parameter::name);
            const int64_t own_head = which == 'q' ? group * shared + slot : group,
                          element = (own_head * head + row % head) * width + e % width;
            return state_value(static_cast<size_t>(p - parameters.begin()), kind,
                               which == 'v' ? element : paired_place(*p, element, head));
          });
        }
        writer.tensor(name + "step", {}, [](int64_t) { return 7.0f; });
      }
    };
    ScratchDirectory directory;
    write_torch_state(directory.path(), model_, form, add);
    TorchTrainingState state(directory.path(), model_, parameters_of(model_));
    const TorchTrainingState::Optimizer optimizer = state.find_optimizer();
    EXPECT_TRUE(optimizer.frozen.empty()) << join(optimizer.frozen, ", ");
    EXPECT_EQ(optimizer.steps, 7);
    EXPECT_TRUE(state.left_out().empty()) << join(state.left_out(), ", ");
    expect_whole(state);

    rows -= head;
    ScratchDirectory other;
    write_torch_state(other.path(), model_, form, add);
    TorchTrainingState broken(other.path(), model_, parameters_of(model_));
    expect_contains(user_error([&] { broken.find_optimizer(); }), ".wqkv.weight.exp_avg' in ");
  }
}

// Names of foundation-model-stack, as its versions have them: parameters that stand one below the
// other in a tensor, by name. Queries and keys rotate neighbours.
using FmsNames = std::vector<std::pair<std::string, std::vector<std::string>>>;

FmsNames fms_names(const ModelConfig& model, bool has_base, const std::string& attention,
                   bool fuses) {
  const std::string base = has_base ? "base_model." : "";
  FmsNames names{{has_base ? "base_model.embedding" : "shared.emb", {"model.embed_tokens"}},
                 {base + "dec_norm", {"model.norm"}},
                 {has_base ? "head" : "shared.head", {"lm_head"}}};
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string there = cat(base, "layers.", layer, "."),
                      here = cat("model.layers.", layer, ".");
    auto add = [&](const std::string& name, const std::vector<std::string>& parameters) {
      names.push_back({there + name, {}});
      for (const std::string& p : parameters) names.back().second.push_back(here + p);
    };
    add("ln", {"input_layernorm"});
    add("ff_ln", {"post_attention_layernorm"});
    add("attn.dense", {"self_attn.o_proj"});
    add("ff_sub_layer.w2", {"mlp.down_proj"});
    if (fuses) {
      add("attn.in_proj.qkv_fused", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
      add("ff_sub_layer.wg1_fused", {"mlp.gate_proj", "mlp.up_proj"});
    } else {
      add(attention + "query", {"self_attn.q_proj"});
      add(attention + "key", {"self_attn.k_proj"});
      add(attention + "value", {"self_attn.v_proj"});
      add("ff_sub_layer.wg", {"mlp.gate_proj"});
      add("ff_sub_layer.w1", {"mlp.up_proj"});
    }
  }
  return names;
}

void write_fms_state(const std::filesystem::path& directory, const ModelConfig& model,
                     const FmsNames& names) {
  TorchStateWriter writer(directory);
  const std::vector<Parameter> parameters = parameters_of(model);
  for (const auto& [name, stacked] : names) {
    std::vector<size_t> numbers;
    Shape shape;
    for (const std::string& p : stacked) {
      const auto found = std::ranges::find(parameters, p + ".weight", &Parameter::name);
      if (found == parameters.end()) continue;  // a tied head
      numbers.push_back(static_cast<size_t>(found - parameters.begin()));
      const int64_t above = shape.empty() ? 0 : shape[0];
      shape = found->shape;
      shape[0] += above;
    }
    if (numbers.empty()) continue;
    auto values = [&](const std::string& kind) {
      return [&, kind](int64_t e) {
        for (size_t number : numbers) {
          const Parameter& p = parameters[number];
          const bool turns = p.name.ends_with("q_proj.weight") || p.name.ends_with("k_proj.weight");
          if (e < num_elements(p.shape))
            return state_value(number, kind, turns ? paired_place(p, e, model.head_dim) : e);
          e -= num_elements(p.shape);
        }
        return -1.0f;
      };
    };
    writer.tensor("model_state." + name + ".weight", shape, values("weight"));
    for (const char* kind : {"exp_avg", "exp_avg_sq"})
      writer.tensor(cat("optimizer_state.state.", name, ".weight.", kind), shape, values(kind));
    writer.tensor(cat("optimizer_state.state.", name, ".weight.step"), {},
                  [](int64_t) { return 7.0f; });
  }
  writer.write();
}

TEST_F(TorchTrainingStateTest, ReadsNamesOfFoundationModelStack) {
  for (bool has_base : {true, false}) {
    for (const std::string attention : {"attn.in_proj.", "attn."}) {
      for (bool fuses : {true, false}) {
        for (bool tied : {false, true}) {
          SCOPED_TRACE(cat(has_base, " ", attention, " ", fuses, " ", tied));
          model_ = tiny_model(ModelType::kLlamaV2, tied);
          ScratchDirectory directory;
          write_fms_state(directory.path(), model_, fms_names(model_, has_base, attention, fuses));
          TorchTrainingState state(directory.path(), model_, parameters_of(model_));
          expect_all_taken(state);
        }
      }
    }
  }
}

TEST_F(TorchTrainingStateTest, NamesWhatDoesNotFitOfFoundationModelStack) {
  auto refused = [&](const FmsNames& names) {
    ScratchDirectory directory;
    write_fms_state(directory.path(), model_, names);
    return user_error([&] { TorchTrainingState(directory.path(), model_, parameters_of(model_)); });
  };
  FmsNames names = fms_names(model_, true, "attn.in_proj.", true);
  auto find = [&](const std::string& name) {
    return std::ranges::find(names, name, &FmsNames::value_type::first);
  };
  find("base_model.layers.1.attn.in_proj.qkv_fused")->first += "_and_more";
  std::string message = refused(names);
  expect_contains(message, "1 tensor is missing");
  expect_contains(message, "model_state.base_model.layers.1.attn.in_proj.qkv_fused.weight");

  names = fms_names(model_, true, "attn.in_proj.", true);
  find("base_model.layers.0.ff_sub_layer.wg1_fused")->second.pop_back();
  message = refused(names);
  expect_contains(message, "'model_state.base_model.layers.0.ff_sub_layer.wg1_fused.weight'");
  expect_contains(message, "is f32 [12, 8], the model needs f32, bf16 or f16 [24, 8]");

  names = fms_names(model_, false, "attn.in_proj.", true);
  names.push_back({"layers.0.attn.sink", {"model.norm"}});
  message = refused(names);
  expect_contains(message, "1 tensor is not part of it: model_state.layers.0.attn.sink.weight");
}

TEST_F(TorchTrainingStateTest, RefusesWeightsThatTheModelDoesNotHave) {
  ModelConfig deeper = model_;
  ++deeper.num_layers;
  for (const char* prefix : {"", "app.model."}) {
    ScratchDirectory directory;
    write_torch_state(directory.path(), deeper, {prefix, "optim."});
    const std::string message =
        user_error([&] { TorchTrainingState(directory.path(), model_, parameters_of(model_)); });
    expect_contains(message, "9 tensors are not part of it: ");
    expect_contains(message, cat(prefix, "model.layers.2."));
  }
  ScratchDirectory directory;
  write_torch_state(directory.path(), model_, {}, [&](TorchStateWriter& w) {
    w.tensor("model.model.layers.1.self_attn.q_proj.bias", {model_.hidden_width},
             [](int64_t) { return 0.0f; });
  });
  expect_contains(
      user_error([&] { TorchTrainingState(directory.path(), model_, parameters_of(model_)); }),
      "model.model.layers.1.self_attn.q_proj.bias");
}

TEST_F(TorchTrainingStateTest, ReadsTransposedMatricesAndATiedHead) {
  model_ = tiny_model(ModelType::kGpt2, true);
  TorchStateForm form;
  form.place = [this](const Parameter& p, int64_t e) {
    return hugging_face_tensor(model_.model_type, p).transposed ? transposed_place(p, e) : e;
  };
  auto head = [&](float difference) {
    return [this, difference](TorchStateWriter& w) {
      w.tensor("model.lm_head.weight", {model_.vocab_size, model_.hidden_width},
               [=](int64_t e) { return state_value(0, "weight", e) + (e == 80 ? difference : 0); });
    };
  };
  write_torch_state(directory_.path(), model_, form, head(0));
  TorchTrainingState state = open();
  state.find_optimizer();
  expect_whole(state);
  EXPECT_TRUE(state.left_out().empty()) << join(state.left_out(), ", ");

  ScratchDirectory other;
  write_torch_state(other.path(), model_, form, head(1));
  expect_contains(
      user_error([&] { TorchTrainingState(other.path(), model_, parameters_of(model_)); }),
      "'model.lm_head.weight'");
}

TEST_F(TorchTrainingStateTest, SaysSettingsFrozenParametersAndTheRest) {
  TorchStateForm form;
  form.trained = [](const std::string& n) { return n.find("embed_tokens") == n.npos; };
  write_torch_state(directory_.path(), model_, form, [](TorchStateWriter& w) {
    for (const char* group : {"0", "1"}) {
      const std::string begin = cat("optim.param_groups.", group, ".");
      w.item(begin + "lr", 3e-4);
      w.item(begin + "weight_decay", *group == '0' ? 0.1 : 0.0);
      w.item(begin + "betas", [](PickleWriter& p) {
        p.mark();
        p.number(0.9);
        p.number(0.95);
        p.tuple();
      });
      w.item(begin + "foreach", [](PickleWriter& p) { p.none(); });
    }
    w.item("scheduler.last_epoch", 7);
    w.item("step", 9);
  });
  TorchTrainingState state = open();
  const TorchTrainingState::Optimizer optimizer = state.find_optimizer();
  EXPECT_EQ(optimizer.steps, 7) << "what the optimizer counts wins";
  EXPECT_EQ(optimizer.frozen, std::vector<std::string>{"model.embed_tokens.weight"});
  using Settings = std::vector<std::vector<double>>;
  EXPECT_EQ(state.settings("lr"), (Settings{{3e-4}}));
  EXPECT_EQ(state.settings("betas"), (Settings{{0.9, 0.95}}));
  EXPECT_EQ(state.settings("weight_decay"), (Settings{{0.1}, {0}}));
  EXPECT_TRUE(state.settings("foreach").empty());
  EXPECT_EQ(state.left_out(), std::vector<std::string>{"scheduler.last_epoch"});
}

TEST_F(TorchTrainingStateTest, NamesWhatIsMissing) {
  TorchStateForm form;
  form.trained = [](const std::string&) { return false; };
  write_torch_state(directory_.path(), model_, form);
  expect_contains(refusal(), "has weights, but nothing that an optimizer keeps");
  ScratchDirectory numbered;
  write_torch_state(numbered.path(), model_, form, [](TorchStateWriter& w) {
    w.tensor("optimizer.state.0.exp_avg", {2}, [](int64_t) { return 0.0f; });
  });
  expect_contains(
      user_error([&] {
        TorchTrainingState(numbered.path(), model_, parameters_of(model_)).find_optimizer();
      }),
      "knows its parameters by numbers");
  model_.num_layers = 3;
  expect_contains(refusal(),
                  "do not fit this llama_v2 model: 9 tensors are missing: "
                  "model.model.layers.2.");
  model_ = tiny_model(ModelType::kLlamaV2);
  model_.intermediate_size = 13;
  expect_contains(refusal(), "is f32 [12, 8], the model needs f32, bf16 or f16 [13, 8]");
  model_ = tiny_model(ModelType::kGpt2);
  expect_contains(refusal(), "do not fit this gpt2 model: ");
}

TEST_F(TorchTrainingStateTest, KnowsAStateWithoutAnythingOfTheModel) {
  TorchStateWriter writer(directory_.path());
  writer.tensor("w", {2}, [](int64_t) { return 0.0f; });
  writer.write();
  expect_contains(refusal(), "has no weights of a llama_v2 model");
}

TEST_F(TorchTrainingStateTest, RefusesAnOptimizerThatDoesNotFit) {
  TorchStateForm form;
  form.trained = [](const std::string& n) { return n != "model.norm.weight"; };
  auto more = [&](const std::function<void(TorchStateWriter&)>& add) {
    ScratchDirectory directory;
    write_torch_state(directory.path(), model_, form, add);
    return user_error([&] {
      TorchTrainingState(directory.path(), model_, parameters_of(model_)).find_optimizer();
    });
  };
  const std::string norm = "optim.state.model.norm.weight.";
  auto zero = [](int64_t) { return 0.0f; };
  expect_contains(more([&](TorchStateWriter& w) { w.tensor(norm + "exp_avg", {8}, zero); }),
                  "only a part of what the optimizer keeps of model.norm.weight");
  expect_contains(more([&](TorchStateWriter& w) {
                    w.tensor(norm + "exp_avg", {7}, zero);
                    w.tensor(norm + "exp_avg_sq", {8}, zero);
                  }),
                  "exp_avg' in ");
  expect_contains(more([&](TorchStateWriter& w) {
                    w.tensor(norm + "exp_avg", {8}, zero);
                    w.tensor(norm + "exp_avg_sq", {8}, zero);
                    w.tensor(norm + "step", {}, [](int64_t) { return 8.0f; });
                  }),
                  "7 times and model.norm.weight 8 times");
  form.steps = 0;
  expect_contains(more({}), "does not say how many steps were done");
}

}  // namespace
}  // namespace tessera
