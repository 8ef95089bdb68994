// Runs that train adapters: resumed, exported, taken on by others, merged.
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/safetensors.h"
#include "generate/decoder.h"
#include "generate/trained_model.h"
#include "options/lora_options.h"
#include "options/model_options.h"
#include "options/option_parser.h"
#include "tests/train/training_fixture.h"
#include "weights/checkpoint_parameters.h"
#include "weights/model_export.h"

namespace tessera {
namespace {

class LoraRun : public TrainingTest {
 protected:
  // A model to begin with, trained a little.
  void make_base(const ModelConfig& model = tiny_model()) {
    RunConfig c = options(3);
    c.checkpoint_dir = {path("base-ckpt")};
    c.save_final_model = true;
    c.model_dir = path("base");
    train(c, model);
  }
  static ModelConfig adapted(ModelConfig model = tiny_model(), double dropout = 0) {
    model.lora = {.rank = 4, .alpha = 16, .dropout = dropout, .targets = {"all-linear"}};
    return model;
  }
  RunConfig tuning(int64_t steps, const std::string& checkpoints = "tuned") const {
    RunConfig c = options(steps);
    c.checkpoint_dir = {path(checkpoints)};
    c.hf_pretrained_model_name_or_dir = path("base");
    return c;
  }
  // What follows some ids, in f32.
  std::vector<float> logits(const std::string& name, const std::string& adapter = "") {
    RunConfig config;
    config.bf16 = false;
    config.lora_adapter = adapter;
    TrainedModel model = open_trained_model(name, config, "byte");
    cpu::CpuBackend backend(2, cpu::detect_isa());
    Decoder decoder(
        DecoderPrograms(model_builder(model.model), {.context = 16, .longest = 16}, backend),
        backend);
    decoder.load(*model.weights, backend.pool());
    const std::vector<int32_t> ids{5, 80, 33, 101, 7};
    auto found = decoder.next_logits(ids);
    return {found.begin(), found.end()};
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                          double bound) {
    ASSERT_EQ(got.size(), want.size());
    double most = 0, off = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      most = std::max(most, static_cast<double>(std::abs(want[i])));
      off = std::max(off, static_cast<double>(std::abs(got[i] - want[i])));
    }
    EXPECT_LE(off, bound * most);
  }
};

TEST_F(LoraRun, ResumesToTheBit) {
  make_base();
  for (bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16);
    ModelConfig model = adapted(tiny_model(), 0.1);
    RunConfig config = tuning(8, cat("straight", bf16));
    config.bf16 = bf16;
    RunTrace straight = train(config, model);
    expect_contains(straight.log, "Trained parameters: ");
    config = tuning(5, cat("parts", bf16));
    config.bf16 = bf16;
    config.resume_from_checkpoint = config.checkpoint_dir;
    train(config, model);
    config.max_steps = 8;
    RunTrace rest = train(config, model);
    EXPECT_EQ(rest.losses, std::vector(straight.losses.begin() + 5, straight.losses.end()));
    EXPECT_EQ(rest.fingerprint, straight.fingerprint);
    SafetensorsFile before(path("base/model.safetensors"));
    CheckpointParameters after(path(cat("parts", bf16, "/llama_v2-8steps")));
    CheckpointReader stored(path(cat("parts", bf16, "/llama_v2-8steps")));
    for (const TensorInfo& tensor : before.tensors()) {
      auto bytes = before.bytes(tensor);
      std::vector<float> was(bytes.size() / sizeof(float)), now(was.size());
      std::memcpy(was.data(), bytes.data(), bytes.size());
      if (bf16) std::ranges::transform(was, was.begin(), [](float x) { return float(BF16(x)); });
      after.read(tensor.name, 0, now);
      EXPECT_EQ(now, was) << tensor.name;
      EXPECT_EQ(stored.find(tensor.name)->dtype, bf16 ? DType::kBF16 : DType::kF32);
      EXPECT_EQ(stored.find(cat("optim.state.", tensor.name, ".exp_avg")), nullptr);
    }
    const std::string adapter = "model.layers.1.mlp.up_proj.lora_B.weight";
    EXPECT_EQ(stored.find(adapter)->dtype, DType::kF32);
    EXPECT_NE(stored.find(cat("optim.state.", adapter, ".exp_avg")), nullptr);
  }
}

TEST_F(LoraRun, OtherAdaptersDoNotResume) {
  make_base();
  train(tuning(2), adapted());
  RunConfig config = tuning(3);
  config.resume_from_checkpoint = config.checkpoint_dir;
  ModelConfig other = adapted();
  other.lora.rank = 8;
  expect_contains(failure(config, other),
                  "has adapters of rank 4 on all-linear, this run has adapters of rank 8 on "
                  "all-linear: give the same --lora_rank and --lora_targets, or begin a new run");
  expect_contains(failure(config), "this run has no adapters");
  other = adapted();
  other.lora.alpha = 3;
  expect_contains(failure(config, other),
                  "is of another model: lora_alpha: 16.0 there, 3.0 in this run");
  EXPECT_EQ(train(config, adapted(tiny_model(), 0.5)).steps, 3) << "dropout is free";
}

TEST_F(LoraRun, AdaptersGoOutAndComeBack) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    SCOPED_TRACE(name(family));
    for (const char* used : {"base", "base-ckpt", "tuned", "again", "merged", "adapter-rest"})
      std::filesystem::remove_all(path(used));
    ModelConfig plain = tiny_model_of(family), model = adapted(plain);
    make_base(plain);
    RunConfig config = tuning(6);
    config.save_final_model = true;
    config.model_dir = path("adapter");
    config.bf16 = false;
    RunTrace first = train(config, model);
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path("adapter")))
      files.insert(entry.path().filename().string());
    EXPECT_EQ(files, (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors"}));
    auto json = nlohmann::json::parse(read_file(path("adapter/adapter_config.json")));
    EXPECT_EQ(json["base_model_name_or_path"], path("base"));
    SafetensorsFile weights(path("adapter/adapter_model.safetensors"));
    for (const TensorInfo& tensor : weights.tensors())
      EXPECT_TRUE(tensor.name.starts_with("base_model.model.")) << tensor.name;

    // So does that of a run that goes on without naming the model.
    RunConfig rest = options(6);
    rest.checkpoint_dir = rest.resume_from_checkpoint = config.checkpoint_dir;
    rest.save_final_model = true;
    rest.model_dir = path("adapter-rest");
    rest.bf16 = false;
    train(rest, model);
    EXPECT_EQ(read_file(path("adapter-rest/adapter_config.json")),
              read_file(path("adapter/adapter_config.json")));

    // Taken on by another run, which has done nothing yet.
    Lora lora = lora_of_adapter(path("adapter"), plain);
    EXPECT_EQ(lora.rank, 4);
    model.lora = lora;
    RunConfig again = tuning(0, "again");
    again.lora_adapter = path("adapter");
    again.save_final_model = true;
    again.model_dir = path("adapter2");
    again.bf16 = false;
    RunTrace second = train(again, model);
    EXPECT_EQ(second.validations.back(), first.validations.back());
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      EXPECT_EQ(read_file(path(cat("adapter/", file))), read_file(path(cat("adapter2/", file))));

    // The checkpoint, the base with the adapter, and both merged say the same.
    CheckpointParameters checkpoint(*newest_complete_checkpoint(path("tuned")));
    ExportOptions options{.tokenizer = "byte", .merge_adapter = true};
    export_trained(path("merged"), checkpoint.record().model, checkpoint, options);
    EXPECT_EQ(read_hugging_face_config(path("merged")).lora, Lora{});
    std::vector<float> with = logits(path("base"), path("adapter"));
    expect_near(logits(path("tuned")), with, 0);
    expect_near(logits(path("merged")), with, 1e-5);
    EXPECT_NE(logits(path("base")), with);
    expect_contains(user_error([&] { logits(path("adapter")); }),
                    "is an adapter: give the model that it was made for, and --lora_adapter");
    expect_contains(user_error([&] { logits(path("tuned"), path("adapter")); }),
                    "has adapters already");
  }
}

TEST_F(LoraRun, SaysWhatAnAdapterDoesNotFit) {
  make_base();
  RunConfig config = tuning(2);
  config.save_final_model = true;
  config.model_dir = path("adapter");
  train(config, adapted());
  auto error = [&](const ModelConfig& model) {
    return user_error([&] { lora_of_adapter(path("adapter"), model); });
  };
  expect_contains(error(tiny_model_of(ModelType::kGpt2)),
                  "adapts 'model.layers.0.self_attn.q_proj', which is no linear layer of this gpt2 "
                  "model; those are c_attn, c_proj, c_fc (transformer.h.0.attn.c_attn and so on)");
  ModelConfig wide = tiny_model();
  wide.hidden_width = 64;
  derive_shape(wide);
  wide.lora = lora_of_adapter(path("adapter"), wide);
  config = options(2);
  config.checkpoint_dir.clear();
  config.lora_adapter = path("adapter");
  expect_contains(failure(config, wide), "lora_A.weight' in '");
  expect_contains(failed().log, "");
  std::string weights = read_file(path("adapter/adapter_model.safetensors"));
  weights.replace(weights.find(".lora_A.weight"), 14, ".lora_X.weight");
  write("adapter/adapter_model.safetensors", weights);
  expect_contains(error(tiny_model()), ".lora_B.weight, but not the lora_A.weight beside it");
  std::filesystem::remove(path("adapter/adapter_model.safetensors"));
  write("adapter/adapter_model.bin", "pickled");
  expect_contains(error(tiny_model()),
                  "of adapters adapter_model.bin is not read: load it with PEFT");
}

ModelConfig resolve(const std::vector<std::string>& arguments) {
  ParsedOptions parsed =
      parse_options(arguments, OptionScope::kTrain, [](const char*) { return std::nullopt; });
  return resolve_model(parsed);
}
std::string usage(const std::vector<std::string>& arguments) {
  try {
    resolve(arguments);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(LoraOptions, BecomeTheAdaptersOfTheModel) {
  Lora lora = resolve({"--model_name", "llama3.2_1b", "--lora_rank", "16"}).lora;
  EXPECT_EQ(lora, (Lora{.rank = 16, .alpha = 32, .targets = {"q_proj", "v_proj"}}));
  EXPECT_EQ(resolve({"--model_name", "gpt2", "--lora_rank", "8"}).lora.targets,
            std::vector<std::string>{"c_attn"});
  lora =
      resolve({"--model_name", "qwen3_0.6b", "--lora_rank", "4", "--lora_alpha", "1",
               "--use_rslora", "1", "--lora_dropout", "0.1", "--lora_targets", "up_proj,down_proj"})
          .lora;
  EXPECT_EQ(lora, (Lora{.rank = 4,
                        .alpha = 1,
                        .rank_stabilised = true,
                        .dropout = 0.1,
                        .targets = {"up_proj", "down_proj"}}));
  EXPECT_EQ(resolve({"--model_name", "gpt2"}).lora, Lora{});
  lora = resolve({"--model_name", "gpt2", "--lora_rank", "4", "--lora_targets", "all-linear"}).lora;
  EXPECT_EQ(lora.targets, (std::vector<std::string>{"c_attn", "c_proj", "c_fc"}))
      << "one list for the same layers, so that runs can be compared";
}

TEST(LoraOptions, SayWhatCannotBe) {
  expect_contains(
      usage({"--model_name", "llama3.2_1b", "--lora_rank", "4", "--lora_targets", "q_prj"}),
      "--lora_targets: no linear layer of this model is called 'q_prj'; did you mean q_proj?; "
      "there "
      "are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj "
      "(model.layers.0.self_attn.q_proj and so on), and all-linear");
  expect_contains(usage({"--model_name", "gpt2", "--lora_alpha", "4"}),
                  "--lora_alpha needs --lora_rank");
  expect_contains(usage({"--model_name", "gpt2", "--lora_adapter", "a", "--lora_rank", "4"}),
                  "--lora_rank is that of --lora_adapter a: leave it out");
  expect_contains(
      usage({"--model_name", "gpt2", "--lora_adapter", "nowhere"}),
      "--lora_adapter: there is no 'nowhere/adapter_config.json': it takes the directory "
      "of an adapter that PEFT has saved");
}

}  // namespace
}  // namespace tessera
