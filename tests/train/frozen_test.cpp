// Frozen parameters: what is chosen, what is not computed and not kept for them, that the others
// train as if nothing were frozen, checkpoints.
#include "checkpoint/safetensors.h"
#include "ops/composite/cross_entropy.h"
#include "planning/plan_report.h"
#include "programs/frozen_parameters.h"
#include "tests/base/error_expectation.h"
#include "tests/programs/lockstep_job.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

using Patterns = std::vector<std::string>;
const Patterns kBottom{"model.embed_tokens.*", "model.layers.0.*"};

std::vector<std::string> frozen_names(std::vector<Parameter> parameters, const Patterns& patterns) {
  freeze_parameters(parameters, patterns);
  std::vector<std::string> names;
  for (const Parameter& p : parameters)
    if (!p.trainable) names.push_back(p.name);
  return names;
}

std::vector<Parameter> parameters_of(const ModelConfig& model) {
  return build_model(model, 1, 8, ModelHead::kLoss).parameters;
}

std::string freeze_error(const ModelConfig& model, const Patterns& patterns) {
  return user_error([&] { frozen_names(parameters_of(model), patterns); });
}

TEST(FreezeParameters, TakesShellPatterns) {
  std::vector<Parameter> llama = parameters_of(tiny_model());
  EXPECT_EQ(frozen_names(llama, {}), Patterns{});
  EXPECT_EQ(frozen_names(llama, {"model.norm.weight"}), Patterns{"model.norm.weight"});
  EXPECT_EQ(frozen_names(llama, {"model.layers.?.mlp.up*"}),
            (Patterns{"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"}));
  EXPECT_EQ(frozen_names(llama, {"*.[1-9].*.[qk]_proj.*", "lm_head.*"}),
            (Patterns{"model.layers.1.self_attn.q_proj.weight",
                      "model.layers.1.self_attn.k_proj.weight", "lm_head.weight"}));
}

TEST(FreezeParameters, SaysWhatCannotBe) {
  expect_contains(
      freeze_error(tiny_model(), {"model.norm.*", "model.embed_token.weight"}),
      "--freeze: no parameter of this model matches 'model.embed_token.weight'; did you "
      "mean model.embed_tokens.weight?");
  std::string unknown = freeze_error(tiny_model(), {"transformer.h.*"});
  expect_contains(unknown,
                  "matches 'transformer.h.*'; its parameters (of layers those of the first): "
                  "model.embed_tokens.weight, model.layers.0.input_layernorm.weight, ");
  expect_lacks(unknown, "layers.1");
  ModelConfig tied = tiny_model();
  tied.tie_word_embeddings = true;
  expect_contains(freeze_error(tied, {"lm_head.*"}),
                  "no parameter of this model matches 'lm_head.*'");
  expect_contains(
      freeze_error(tiny_model(), {"model.*", "lm_head.*"}),
      "--freeze model.* lm_head.*: every parameter is frozen, nothing is left to train");
}

// Programs of four layers that recompute, so that also clones would be seen.
Programs programs_of(const Patterns& freeze, bool tied = false, ModelConfig model = tiny_model()) {
  model.num_layers = 4;
  model.tie_word_embeddings = tied;
  ProgramOptions options = tiny_programs(2, 16, DType::kBF16);
  options.residency.share_numerator = 1;
  options.residency.regather = true;
  options.freeze = freeze;
  return build_programs(model_builder(model), options);
}

int count(const Graph& graph, std::string_view op, std::string_view scope = "") {
  return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const Node& n) {
    return n.op->name() == op && n.scope.starts_with(scope);
  }));
}

std::set<std::string> slots_of(const Programs& programs) {
  std::set<std::string> slots;
  for (const Graph* g : {&programs.accumulate_first, &programs.accumulate, &programs.apply}) {
    for (const GraphInput& input : g->inputs())
      if (input.kind == InputKind::kState) slots.insert(input.name);
    for (const StateUpdate& update : g->updates()) slots.insert(update.slot);
  }
  return slots;
}

TEST(FrozenPrograms, HaveNoBackwardPassBelowTheFirstTrainedLayer) {
  Programs programs = programs_of({"model.embed_tokens.*", "model.layers.[01].*"});
  for (const Graph* g : {&programs.accumulate_first, &programs.accumulate}) {
    for (const Node& node : g->nodes()) {
      if (node.phase == Phase::kForward) continue;
      for (const char* frozen : {"embed", "layers.0", "layers.1"})
        EXPECT_FALSE(node.scope.starts_with(frozen)) << node.op->name() << " in " << node.scope;
    }
    const bool first = g == &programs.accumulate_first;
    EXPECT_EQ(count(*g, first ? "linear_dw" : "linear_dw_add"), 2 * 7);
    EXPECT_EQ(count(*g, "linear_dx") + count(*g, "linear_dx_add"), 2 * 7)
        << "the norm before q, k and v is trained";
  }
  std::set<std::string> expected{"weight.embed", "weight.layers.0", "weight.layers.1",
                                 "loss_sum",     "token_count",     "optimizer_step"};
  for (const char* unit : {"layers.2", "layers.3", "head"})
    for (const char* slot : {"weight.", "compute_weight.", "gradient.", "exp_avg.", "exp_avg_sq."})
      expected.insert(cat(slot, unit));
  EXPECT_EQ(slots_of(programs), expected);
  EXPECT_EQ(count(programs.apply, "adamw"), 3);
  EXPECT_EQ(count(programs.apply, "sum_squares"), 3);
  for (const StateUpdate& update : programs.accumulate.updates())
    EXPECT_FALSE(update.slot.starts_with("weight.")) << update.slot;
}

TEST(FrozenPrograms, HaveNoGradientsOfFrozenMatrices) {
  Programs all = programs_of({});
  Programs attention = programs_of({"*.self_attn.*"});
  EXPECT_EQ(count(all.accumulate_first, "linear_dw"), 4 * 7);
  EXPECT_EQ(count(attention.accumulate_first, "linear_dw"), 4 * 3);
  EXPECT_EQ(count(attention.accumulate_first, "linear_dw", "layers.2.attn"), 0);
  // Of the input of queries, keys and values, and of that of gate and up, the gradient is a sum.
  EXPECT_EQ(count(attention.accumulate_first, "linear_dx"), 4 * 4) << "what lies below is trained";
  EXPECT_EQ(count(attention.accumulate_first, "linear_dx_add"), 4 * 3);
  EXPECT_LT(program_flops(attention.accumulate_first), program_flops(all.accumulate_first));
  // The frozen parameters of a layer are a unit of their own.
  EXPECT_EQ(all.units.size(), 6u);
  EXPECT_EQ(attention.units.size(), 10u);
  EXPECT_EQ(slots_of(attention).contains("gradient.layers.2"), true);
  EXPECT_EQ(slots_of(attention).contains("gradient.layers.2/1"), false);
}

TEST(FrozenPrograms, AFrozenHeadFormsNoGradientOfItsMatrix) {
  auto wanted = [](const Programs& programs) {
    for (const Node& node : programs.accumulate_first.nodes()) {
      if (node.op->name() == "linear_cross_entropy_backward")
        return static_cast<const LinearCrossEntropyBackward&>(*node.op).gradients();
    }
    return HeadGradients{false, false};
  };
  HeadGradients all = wanted(programs_of({}));
  EXPECT_TRUE(all.dx && all.dw);
  HeadGradients head = wanted(programs_of({"lm_head.*"}));
  EXPECT_TRUE(head.dx && !head.dw);
  HeadGradients tied = wanted(programs_of({"model.embed_tokens.*"}, true));
  EXPECT_TRUE(tied.dx && !tied.dw);
  Programs probe = programs_of({"model.*"});  // the output matrix alone is trained
  EXPECT_TRUE(!wanted(probe).dx && wanted(probe).dw);
  EXPECT_EQ(count(probe.accumulate_first, "linear_cross_entropy"), 0) << "still subsumed";
  for (const Node& node : probe.accumulate_first.nodes())
    EXPECT_FALSE(node.op->name().starts_with("rms_norm_backward")) << node.scope;
}

// Gradients of one step in f64 as the first moments show them, without the factor of clipping.
std::map<std::string, std::vector<double>> gradients_of(const ModelConfig& model,
                                                        const Patterns& freeze) {
  ProgramOptions options = tiny_programs(2, 8, DType::kF32);
  options.accumulates = false;
  options.freeze = freeze;
  LockstepJob job(model, options, 1);
  job.step(0);
  std::map<std::string, std::vector<double>> gradients;
  double clip = std::min(1.0, 0.5 / (job.norm() + 1e-6)), squares = 0;
  for (const Parameter& p : job.programs().parameters) {
    if (!p.trainable) continue;
    std::vector<double>& gradient = gradients[p.name] = job.whole("exp_avg", p);
    for (double& g : gradient) {
      g /= clip * (1 - options.optimizer.beta1);
      squares += g * g;
    }
  }
  EXPECT_NEAR(std::sqrt(squares), job.norm(), 1e-12 * job.norm()) << "frozen ones count nowhere";
  return gradients;
}

TEST(FrozenGradients, AreThoseOfAJobThatTrainsAll) {
  struct Case {
    ModelType family;
    bool tied;
    std::vector<Patterns> freeze;
  };
  Case cases[] = {
      {ModelType::kLlamaV2,
       false,
       {kBottom, {"*.self_attn.*", "*norm*"}, {"lm_head.*"}, {"model.*"}, {"*.1.*"}}},
      {ModelType::kLlamaV2, true, {kBottom, {"model.embed_tokens.*"}, {"*_proj.*"}}},
      {ModelType::kGpt2, false, {{"*.wte.*", "*.h.0.*"}, {"*.weight"}, {"*.bias", "lm_head.*"}}},
      {ModelType::kGpt2, true, {{"*.wte.*", "*.h.0.*"}, {"*.wte.*"}, {"*.attn.*"}}}};
  for (const Case& c : cases) {
    ModelConfig model = tiny_model_of(c.family);
    model.vocab_size = 40;
    model.tie_word_embeddings = c.tied;
    auto all = gradients_of(model, {});
    for (const Patterns& freeze : c.freeze) {
      SCOPED_TRACE(cat(name(c.family), c.tied ? " tied, " : ", ", join(freeze, " ")));
      auto some = gradients_of(model, freeze);
      EXPECT_LT(some.size(), all.size());
      for (const auto& [parameter, gradient] : some) {
        double most = 0, off = 0;
        for (size_t i = 0; i < gradient.size(); ++i) {
          most = std::max(most, std::abs(all.at(parameter)[i]));
          off = std::max(off, std::abs(gradient[i] - all.at(parameter)[i]));
        }
        EXPECT_LE(off, 1e-12 * most) << parameter;
      }
    }
  }
}

using Weights = std::map<std::string, std::vector<float>>;

// All weights of a session after some steps without clipping.
Weights weights_after(int64_t steps, const ModelConfig& model, const ProgramOptions& options) {
  TinySession tiny(model, options, 2);
  EXPECT_EQ(tiny.session.allocated_bytes(), tiny.session.planned_memory().total());
  for (int64_t s = 0; s < steps; ++s) {
    TinyBatch a(options.batch, options.length, static_cast<uint64_t>(2 * s));
    TinyBatch b(options.batch, options.length, static_cast<uint64_t>(2 * s + 1));
    for (TinyBatch* batch : {&a, &b})
      batch->give_row_keys(static_cast<uint64_t>(s), 0, options.batch);
    EXPECT_TRUE(tiny.session.step(std::vector{a.view(), b.view()}, 0.01, 0).ok);
  }
  Weights weights;
  for (const Parameter& p : tiny.session.programs().parameters) {
    std::vector<float> w = tiny.session.parameter(p.name);
    weights[p.name].assign(w.begin(), w.end());
  }
  return weights;
}

class FrozenSession : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Compute, FrozenSession,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(name(test.param)); });

// Frozen weights keep their bits; the others get the bits of a step that trains all.
TEST_P(FrozenSession, TheOthersTrainAsIfNothingWereFrozen) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2}) {
    ModelConfig model = tiny_model_of(family);
    ProgramOptions options = tiny_programs(2, 16, GetParam());
    options.z_loss = 0.01;
    Weights first = weights_after(0, model, options), all = weights_after(1, model, options);
    for (const Patterns& freeze :
         {Patterns{"*.[we][tpm]*", "*.0.*"}, Patterns{"*[djnt].weight"}, Patterns{"*att*"}}) {
      options.freeze = freeze;
      for (bool moved : {false, true}) {  // recomputed, offloaded, in the far tier
        SCOPED_TRACE(cat(name(family), ", ", join(freeze, " "), moved ? ", moved" : ""));
        options.far_state = options.residency.offload = moved;
        options.residency.share_numerator = moved ? 0.5 : 0;
        options.residency.horizon = 0;
        Weights one = weights_after(1, model, options), three = weights_after(3, model, options);
        std::vector<std::string> frozen = frozen_names(parameters_of(model), freeze);
        for (const auto& [parameter, weights] : one) {
          bool is_frozen = std::ranges::count(frozen, parameter) > 0;
          EXPECT_EQ(weights, is_frozen ? first.at(parameter) : all.at(parameter)) << parameter;
          if (is_frozen)
            EXPECT_EQ(three.at(parameter), weights) << parameter;
          else
            EXPECT_NE(three.at(parameter), weights) << parameter;
        }
      }
    }
  }
}

TEST(FrozenMemory, IsThatOfWeightsAlone) {
  ModelConfig model = tiny_model();
  ProgramOptions options = tiny_programs(2, 16, DType::kF32);
  auto memory = [&](const Patterns& freeze) {
    options.freeze = freeze;
    return TinySession(model, options).session.planned_memory();
  };
  Session::Memory all = memory({}), some = memory({"model.layers.*"});
  // Units: embed 9600, head 32 + 9600 elements, each rounded up to 1024.
  EXPECT_EQ(some.parameters, all.parameters);
  EXPECT_EQ(some.gradients, 4 * (10240 + 10240));
  EXPECT_EQ(some.optimizer, 2 * some.gradients);
  EXPECT_LE(some.arena, all.arena);
}

TEST(FrozenPlan, SaysHowManyAreTrained) {
  RunConfig config;
  config.model_type = "llama_v2";
  config.max_context_width = 16;
  ModelConfig model = tiny_model();
  cpu::CpuBackend backend(1, cpu::detect_isa());
  auto report = [&] { return plan_report(config, model, {.backend = &backend}).text; };
  std::string all = report();
  expect_lacks(all, "trained");
  config.freeze = {"model.layers.*"};
  std::string some = report();
  expect_contains(some, ", of which 19232 (19.23 K) are trained, 2 layers");
  expect_contains(some, format("  %-28s %12s", "gradients (f32)", "80.0 KiB"));
  expect_contains(some, format("  %-28s %12s", "moments (f32)", "160.0 KiB"));
}

class FrozenRun : public TrainingTest {
 protected:
  RunConfig frozen(int64_t steps, const Patterns& patterns = kBottom) const {
    RunConfig config = options(steps);
    config.freeze = patterns;
    return config;
  }
};

TEST_F(FrozenRun, ResumesToTheBit) {
  RunConfig config = frozen(8);
  config.checkpoint_dir = {path("straight")};
  RunTrace straight = train(config);
  expect_contains(straight.log, "Trained parameters: ");
  config = frozen(5);
  config.resume_from_checkpoint = config.checkpoint_dir;
  train(config);
  CheckpointReader saved_state(path("ckpt/llama_v2-5steps"));
  for (const char* saved : {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                            "optim.state.model.layers.1.mlp.up_proj.weight.exp_avg",
                            "optim.state.lm_head.weight.exp_avg_sq"})
    EXPECT_NE(saved_state.find(saved), nullptr) << saved;
  for (const char* none : {"optim.state.model.embed_tokens.weight.exp_avg",
                           "optim.state.model.layers.0.mlp.up_proj.weight.exp_avg_sq",
                           "optim.state.model.embed_tokens.weight.step"})
    EXPECT_EQ(saved_state.find(none), nullptr) << none;
  config.max_steps = 8;
  RunTrace rest = train(config);
  EXPECT_EQ(rest.losses, std::vector(straight.losses.begin() + 5, straight.losses.end()));
  EXPECT_EQ(rest.fingerprint, straight.fingerprint);
}

TEST_F(FrozenRun, AnotherChoiceDoesNotResume) {
  train(frozen(2));
  RunConfig config = frozen(3, {"model.layers.0.*"});
  config.resume_from_checkpoint = config.checkpoint_dir;
  std::string message = failure(config);
  expect_contains(message,
                  "was saved with --freeze model.embed_tokens.* model.layers.0.*, this run has "
                  "--freeze model.layers.0.*: model.embed_tokens.weight is frozen there and "
                  "trained here; resume with the --freeze of the checkpoint");
  config.freeze.clear();
  expect_contains(failure(config), "this run has --freeze None");
  config.freeze = {"model.*.0.*", "*embed*"};  // the same in other words
  EXPECT_EQ(train(config).steps, 3);
}

TEST_F(FrozenRun, ExportsAndStartsFromWholeModels) {
  RunConfig first = options(3);
  first.save_final_model = true;
  first.model_dir = path("model");
  train(first);
  RunConfig tuning = frozen(3);
  tuning.checkpoint_dir = {path("tuned")};
  tuning.hf_pretrained_model_name_or_dir = path("model");
  tuning.save_final_model = true;
  train(tuning);
  SafetensorsFile before(path("model/model.safetensors")),
      after(path("tuned/model/model.safetensors"));
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const TensorInfo& tensor : before.tensors()) {
    bool is_frozen = tensor.name.starts_with("model.embed_tokens.") ||
                     tensor.name.starts_with("model.layers.0.");
    EXPECT_EQ(std::ranges::equal(before.bytes(tensor), after.bytes(*after.find(tensor.name))),
              is_frozen)
        << tensor.name;
  }
}

TEST_F(FrozenRun, AWrongPatternStopsTheRunBeforeItTrains) {
  expect_contains(failure(frozen(2, {"modle.*"})), "--freeze: no parameter of this model matches");
  EXPECT_TRUE(failed().losses.empty());
  expect_contains(failure(frozen(2, {"*"})), "nothing is left to train");
}

}  // namespace
}  // namespace tessera
