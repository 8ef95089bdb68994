// Weights out of a run and into another, in the layout of Hugging Face's programs.
#include <cstring>
#include <limits>

#include "checkpoint/safetensors.h"
#include "generate/trained_model.h"
#include "models/model_family.h"
#include "options/model_options.h"
#include "options/option_parser.h"
#include "tests/base/ended_process.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/train/training_fixture.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint_conversion.h"
#include "weights/checkpoint_parameters.h"
#include "weights/model_export.h"

namespace tessera {
namespace {

class FineTuning : public TrainingTest {
 protected:
  // Trains a few steps and writes the model to `directory`.
  RunTrace train_model(const std::string& directory, int64_t steps = 3,
                       const ModelConfig& model = tiny_model()) {
    RunConfig c = options(steps);
    c.save_final_model = true;
    c.model_dir = path(directory);
    return train(c, model);
  }
  // A run of `steps` steps that starts from the model in `directory`.
  RunConfig from(const std::string& directory, int64_t steps) const {
    RunConfig c = options(steps);
    c.checkpoint_dir = {path("tuned")};
    c.hf_pretrained_model_name_or_dir = path(directory);
    return c;
  }
  std::string weights(const std::string& directory) const {
    return read_file(path(directory + "/model.safetensors"));
  }
  // resolve_model() after the command line.
  static ModelConfig resolve(const std::vector<std::string>& arguments, RunConfig& config,
                             std::vector<std::string>* warnings = nullptr) {
    ParsedOptions parsed =
        parse_options(arguments, OptionScope::kTrain, [](const char*) { return std::nullopt; });
    ModelConfig model = resolve_model(parsed);
    config = parsed.config;
    if (warnings) *warnings = parsed.warnings;
    return model;
  }
};

TEST_F(FineTuning, ExportAndImportKeepEveryBit) {
  for (const ModelFamily* family : kModelFamilies) {
    if (family->classes.empty()) continue;
    SCOPED_TRACE(family->name);
    for (const char* used : {"ckpt", "tuned"}) std::filesystem::remove_all(path(used));
    ModelConfig model = tiny_model_of(family->type);
    model.bias = family_defaults(family->type).bias;
    if (family->complete) family->complete(model);
    RunTrace first = train_model("model", 3, model);
    EXPECT_EQ(read_hugging_face_config(path("model")), model);
    RunConfig c = from("model", 0);
    c.save_final_model = true;
    c.model_dir = path("again");
    RunTrace second = train(c, model);
    EXPECT_EQ(weights("model"), weights("again"));
    EXPECT_EQ(second.validations.back(), first.validations.back());
    EXPECT_EQ(read_file(path("model/config.json")), read_file(path("again/config.json")));
  }
}

// transformers' GPT-2 always has biases: those that were never there are zeros.
TEST_F(FineTuning, AGpt2WithoutBiasesGetsZeros) {
  ModelConfig model = tiny_model_of(ModelType::kGpt2);
  model.bias = false;
  RunConfig c = options(3);
  c.save_final_model = true;
  c.model_dir = path("model");
  RunTrace first = train(c, model);
  model.bias = true;
  RunConfig measure = from("model", 0);
  measure.eval_only = true;
  RunTrace second = train(measure, model);
  double before = std::stod(first.validations.back());
  EXPECT_NEAR(std::stod(second.validations.back()), before, 1e-6 * before);
  SafetensorsFile file(path("model/model.safetensors"));
  const TensorInfo* bias = file.find("transformer.h.1.attn.c_attn.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->shape, Shape{3 * model.hidden_width});
  for (std::byte b : file.bytes(*bias)) EXPECT_EQ(b, std::byte{0});
}

TEST_F(FineTuning, EvaluationOfWeightsThatAreNotFiniteFails) {
  train_model("model");
  std::string content = weights("model");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&content[content.size() - sizeof nan], &nan, sizeof nan);
  write("model/model.safetensors", content);
  RunConfig measure = from("model", 0);
  measure.eval_only = true;
  expect_contains(failure(measure), "--eval_only: the loss is not finite");
}

TEST_F(FineTuning, StartsFreshFromTheWeights) {
  RunTrace first = train_model("model");
  RunTrace tuned = train(from("model", 2));
  EXPECT_EQ(tuned.steps, 2);
  EXPECT_EQ(tuned.rates.front(), first.rates.front());
  EXPECT_LT(std::stod(tuned.losses.front()), std::stod(first.losses.front()) - 0.1);
  expect_contains(tuned.log, "Loading weights from");
}

TEST_F(FineTuning, ACheckpointWinsOverPretrainedWeights) {
  train_model("model");
  RunTrace straight = train(from("model", 6));
  std::filesystem::remove_all(path("tuned"));
  train(from("model", 4));
  RunConfig rest = from("model", 6);
  rest.resume_from_checkpoint = {path("tuned")};
  std::filesystem::remove(path("model/model.safetensors"));  // the configuration alone is read
  RunTrace resumed = train(rest);
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
  expect_lacks(resumed.log, "Loading weights from");
}

TEST_F(FineTuning, SourcesOfWeights) {
  train_model("model");
  RunConfig by_file = options(0);
  by_file.finetune = true;
  by_file.pretrained_checkpoint_file = path("model/model.safetensors");
  RunConfig by_directory = options(0);
  by_directory.finetune = true;
  by_directory.pretrained_model_name = "does not matter here";
  by_directory.finetune_checkpoint_load_dir = path("model");
  for (RunConfig c : {by_file, by_directory}) {
    c.save_final_model = true;
    c.model_dir = path("again");  // written twice: it is our own
    c.checkpoint_dir.clear();
    train(c);
    EXPECT_EQ(weights("again"), weights("model"));
  }
}

TEST_F(FineTuning, ConfigurationAndTokenizerComeWithTheWeights) {
  train_model("model");
  RunConfig config;
  std::string directory = path("model");
  ModelConfig expected = read_hugging_face_config(directory);
  EXPECT_EQ(resolve({"--hf_model", directory}, config), expected);
  EXPECT_EQ(config.tokenizer, directory);
  EXPECT_EQ(resolve({"--hf_model", directory, "--tokenizer", "byte"}, config), expected);
  EXPECT_EQ(config.tokenizer, "byte");
  std::string file = directory + "/model.safetensors";
  EXPECT_EQ(resolve({"--finetune", "--pretrained_checkpoint_file", file, "--model_type", "mistral"},
                    config),
            expected)
      << "its configuration goes before the options";
  EXPECT_EQ(config.tokenizer, directory);
  EXPECT_EQ(resolve({"--finetune", "--pretrained_model_name", directory,
                     "--finetune_checkpoint_load_dir", "elsewhere"},
                    config),
            expected);
  std::filesystem::remove(directory + "/config.json");
  EXPECT_EQ(resolve({"--finetune", "--pretrained_checkpoint_file", file, "--model_type", "mistral"},
                    config)
                .model_type,
            ModelType::kMistral);
}

TEST_F(FineTuning, TheExportedByteTokenizerGivesTheSameIds) {
  train_model("model");
  auto bytes = load_tokenizer("byte"), exported = load_tokenizer(path("model"));
  ASSERT_EQ(exported->vocab_size(), bytes->vocab_size());
  EXPECT_EQ(exported->end_of_text(), bytes->end_of_text());
  std::string text;
  for (int i = 0; i < 1024; ++i) text += static_cast<char>(i * 7 + i / 256);
  std::vector<int32_t> a, b;
  bytes->encode(text, a);
  exported->encode(text, b);
  EXPECT_EQ(a, b);
  auto json = nlohmann::json::parse(read_file(path("model/generation_config.json")));
  EXPECT_EQ(json["eos_token_id"], 256);
}

TEST_F(FineTuning, ResumedFineTuningTakesAllFromTheCheckpoint) {
  train(options(2));
  RunConfig config;
  ModelConfig model = resolve(
      {"--finetune", "--resume_from_checkpoint", path("ckpt"), "--model_type", "mistral"}, config);
  EXPECT_EQ(model, tiny_model());
  EXPECT_EQ(config.tokenizer, "byte");
  std::string nothing = message_of<UsageError>([&] {
    resolve({"--finetune", "--resume_from_checkpoint", path("none")}, config);
  });
  expect_contains(nothing, "there is no checkpoint in '");
  expect_contains(nothing, "so --finetune 1 needs --pretrained_model_name");
}

TEST_F(FineTuning, WhatIsGivenBesideACheckpointIsNotLostSilently) {
  train(options(2));
  RunConfig config;
  std::vector<std::string> warnings;
  auto resumed_with = [&](std::vector<std::string> arguments) {
    for (const std::string& more :
         {cat("--finetune"), cat("--resume_from_checkpoint"), path("ckpt")})
      arguments.push_back(more);
    return resolve(arguments, config, &warnings);
  };
  resumed_with({"--model_type", "llama_v2"});
  EXPECT_EQ(warnings, std::vector<std::string>());
  EXPECT_EQ(resumed_with({"--model_type", "mistral", "--num_layers", "7"}), tiny_model());
  EXPECT_EQ(warnings, std::vector<std::string>{"ignored, since the checkpoint that is resumed "
                                               "describes the model: --model_type, --num_layers"});
  const ModelConfig adapted = resumed_with({"--lora_rank", "4"});
  EXPECT_EQ(adapted.lora.rank, 4);
  config = options(3);
  config.finetune = true;
  config.resume_from_checkpoint = {path("ckpt")};
  config.lora_rank = 4;
  expect_contains(failure(config, adapted), "has no adapters, this run has adapters of rank 4");
}

// Its weights have learned all positions of the model, whatever the windows here.
TEST_F(FineTuning, AResumedRunRemembersWhatItBeganWith) {
  train_model("model");
  const auto context_of = [&](const std::string& checkpoint) {
    return open_trained_model(path(checkpoint), {}).context;
  };
  const int64_t positions = tiny_model().max_context_width;
  ASSERT_GT(positions, 16);
  EXPECT_EQ(context_of("ckpt/llama_v2-3steps"), 16);
  train(from("model", 2));
  EXPECT_EQ(context_of("tuned/llama_v2-2steps"), positions);
  RunConfig rest = options(4);
  rest.checkpoint_dir = rest.resume_from_checkpoint = {path("tuned")};
  train(rest);
  EXPECT_EQ(context_of("tuned/llama_v2-4steps"), positions);
  EXPECT_EQ(base_model_of(CheckpointParameters(path("tuned/llama_v2-4steps")).record()),
            path("model"));
  // What began with random weights has no more behind a resume that names a model.
  rest = from("model", 4);
  rest.checkpoint_dir = rest.resume_from_checkpoint = {path("ckpt")};
  train(rest);
  EXPECT_EQ(context_of("ckpt/llama_v2-4steps"), 16);
  // Nor has one that was made of another program's checkpoint less.
  convert_to_torch(path("tuned/llama_v2-4steps"), path("torch"));
  convert_from_torch({path("torch"), path("made"), tiny_model(), RunConfig(), "byte", 0});
  rest = options(5);
  rest.checkpoint_dir = rest.resume_from_checkpoint = {path("made")};
  train(rest);
  EXPECT_EQ(context_of("made/llama_v2-5steps"), positions);
}

TEST_F(FineTuning, WhatDoesNotFitIsSaidBeforeAnythingIsDone) {
  train_model("model");
  std::filesystem::remove_all(path("cache"));
  ModelConfig wider = tiny_model();
  wider.intermediate_size = 96;
  expect_contains(failure(from("model", 2), wider),
                  "tensor 'model.layers.0.mlp.gate_proj.weight' in '");
  expect_contains(failure(from("model", 2), wider),
                  "is f32 [64, 32], the model needs f32, bf16 or f16 [96, 32]");
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_FALSE(std::filesystem::exists(path("cache"))) << "nothing was tokenized";
  RunConfig nowhere = from("model", 2);
  nowhere.hf_pretrained_model_name_or_dir = "org/name";
  nowhere.hf_home = path("hf");
  expect_contains(failure(nowhere), "--hf_pretrained_model_name_or_dir org/name is neither");
  expect_contains(failure(nowhere), "`hf download org/name`");
}

TEST_F(FineTuning, FindsAModelByNameInTheCache) {
  train_model("hf/hub/models--org--name/snapshots/abc");
  RunConfig c = from("", 1);
  c.hf_pretrained_model_name_or_dir = "org/name";
  c.hf_home = path("hf");
  expect_contains(train(c).log, "Loading weights from");
  RunConfig config;
  EXPECT_EQ(resolve({"--hf_model", "org/name", "--hf_home", path("hf")}, config).num_layers,
            tiny_model().num_layers);
}

TEST_F(FineTuning, ACheckpointMustHoldWhatItsRecordSays) {
  std::vector<float> weight(64);
  std::vector<StateBox> boxes{
      {"model.norm.weight", TensorRole::kWeight, DType::kF32, {64}, {{0}, {64}}, weight.data()}};
  RunRecord record;
  record.model = tiny_model();
  record.options.model_type = "llama_v2";
  auto checkpoint = save_boxes(path("ckpt"), "llama_v2", 1, boxes, to_json(record));
  expect_contains(user_error([&] { CheckpointParameters parameters(checkpoint); }),
                  "does not fit its record: it should have 'model.embed_tokens.weight' with shape "
                  "[300, 32]");
}

TEST_F(FineTuning, NeverOverwritesWhatItDidNotWrite) {
  make_directories(path("mine"));
  write("mine/notes.txt", "x");
  RunConfig c = options(2);
  c.save_final_model = true;
  c.model_dir = path("mine");
  expect_contains(failure(c), "'notes.txt' in it was not written by tessera");
  EXPECT_TRUE(failed().losses.empty()) << "before training";
  EXPECT_EQ(read_file(path("mine/notes.txt")), "x");
  std::filesystem::remove(path("mine/notes.txt"));
  train(c);
  const auto bytes = std::filesystem::file_size(path("mine/model.safetensors"));
  const std::string left = path(cat("mine.tmp-", ended_process()));  // of one that was killed
  make_directories(left);
  write_file_atomic(std::filesystem::path(left) / "model.safetensors", "half");
  c.dtype = "bf16";
  c.checkpoint_dir = {path("other")};
  train(c);
  EXPECT_LT(std::filesystem::file_size(path("mine/model.safetensors")), bytes * 6 / 10);
  EXPECT_FALSE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace tessera
