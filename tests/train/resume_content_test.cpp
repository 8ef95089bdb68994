// What a run is resumed with: its tokenizer, wherever the files are, its text, its options.
#include "checkpoint/attached_files.h"
#include "hub/saved_state.h"
#include "tests/train/training_fixture.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "weights/checkpoint_conversion.h"
#include "weights/checkpoint_parameters.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class ResumeContent : public TrainingTest {
 protected:
  ResumeContent() { write_tokenizer("tok.json", ""); }

  // The bytes, a token of two, and the end of text.
  void write_tokenizer(const std::string& file, const std::string& merged) const {
    BpeModel model;
    auto bytes = load_tokenizer("byte");
    for (int32_t id = 0; id < 256; ++id) model.tokens.emplace_back(bytes->token_bytes(id));
    if (!merged.empty()) {
      model.tokens.push_back(merged);
      auto byte = [&](size_t i) { return static_cast<int32_t>(static_cast<uint8_t>(merged[i])); };
      model.merges.push_back({byte(0), byte(1), 256});
    }
    model.end_of_text = static_cast<int32_t>(model.tokens.size());
    model.tokens.emplace_back(kEndOfTextName);
    model.added = {{.text = std::string(kEndOfTextName), .id = model.end_of_text, .special = true}};
    write_tokenizer_json(path(file), model);
  }
  RunConfig with_tokenizer(int64_t steps) const {
    RunConfig c = options(steps);
    c.tokenizer = path("tok.json");
    c.resume_from_checkpoint = c.checkpoint_dir;
    return c;
  }
  std::string tokenizer_of_checkpoint(const std::string& directory) const {
    return tokenizer_of(path(directory), CheckpointParameters(path(directory)).record());
  }
  // A checkpoint of the first version: nothing but three files and a path.
  void make_old(const std::string& directory) const {
    fs::remove_all(path(directory + "/tokenizer"));
    auto run = nlohmann::ordered_json::parse(read_file(path(directory + "/run.json")));
    for (const char* key : {"tokenizer", "training_text", "data_ranks"}) run.erase(key);
    std::string text = run.dump();
    write(directory + "/run.json", text);
    Manifest manifest = read_manifest(path(directory));
    manifest.origin = {};
    std::erase_if(manifest.files, [](const ManifestFile& file) {  // behind those of the state
      return file.name.starts_with("tokenizer");
    });
    for (ManifestFile& file : manifest.files)
      if (file.name == "run.json") file = {file.name, text.size(), hash_text(text)};
    write(directory + "/manifest.json", to_json(manifest));
  }
};

TEST_F(ResumeContent, TheCheckpointHoldsItsTokenizer) {
  RunTrace straight = train([&] {
    RunConfig c = with_tokenizer(5);
    c.checkpoint_dir = {path("straight")};
    c.resume_from_checkpoint = {};
    return c;
  }());
  const std::string original = read_file(path("tok.json"));
  train(with_tokenizer(3));
  EXPECT_EQ(read_file(path("ckpt/llama_v2-3steps/tokenizer/tok.json")), original);
  auto run = nlohmann::json::parse(read_file(path("ckpt/llama_v2-3steps/run.json")));
  EXPECT_EQ(run["tokenizer"]["place"], "tokenizer/tok.json");
  EXPECT_EQ(run["options"]["tokenizer"], path("tok.json"));

  // Moved, and the original gone.
  fs::rename(path("ckpt"), path("moved"));
  fs::remove(path("tok.json"));
  EXPECT_EQ(tokenizer_of_checkpoint("moved/llama_v2-3steps"),
            path("moved/llama_v2-3steps/tokenizer/tok.json"));
  EXPECT_EQ(load_tokenizer(tokenizer_of_checkpoint("moved/llama_v2-3steps"))->vocab_size(), 257);
  RunConfig config = with_tokenizer(5);
  config.checkpoint_dir = config.resume_from_checkpoint = {path("moved")};
  config.num_kept_checkpoints = {"1"};
  config.save_final_model = true;  // after the checkpoint that the tokenizer came from is removed
  config.model_dir = path("model");
  RunTrace resumed = train(config);
  expect_contains(resumed.log, "that of the checkpoint is taken");
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
  EXPECT_EQ(checkpoints("moved"), std::set<std::string>{"llama_v2-5steps"});
  EXPECT_EQ(read_file(path("moved/llama_v2-5steps/tokenizer/tok.json")), original);
  EXPECT_EQ(read_file(path("model/tokenizer.json")), original);
  EXPECT_EQ(fs::exists(path("model.tokenizer")), false);
}

TEST_F(ResumeContent, ADamagedTokenizerIsADamagedCheckpoint) {
  train(with_tokenizer(2));
  fs::path file = path("ckpt/llama_v2-2steps/tokenizer/tok.json");
  std::string text = read_file(file);
  text[text.find("256")] = '3';
  write_file_atomic(file, text);
  expect_contains(failure(with_tokenizer(3)), "tokenizer/tok.json' has hash");
}

TEST_F(ResumeContent, AnotherTokenizerIsRefused) {
  ModelConfig model = tiny_model();
  train(with_tokenizer(2), model);
  const auto before = checkpoints();
  write_tokenizer("tok.json", "th");  // under the same name
  fs::remove_all(path("cache"));
  std::string message = failure(with_tokenizer(3), model);
  expect_contains(message, "--tokenizer " + path("tok.json") + " is another one than that of");
  expect_contains(message, "Give --tokenizer " + path("ckpt/llama_v2-2steps/tokenizer/tok.json"));
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_FALSE(fs::exists(path("cache"))) << "no text was read for nothing";
  EXPECT_EQ(checkpoints(), before);

  write_tokenizer("renamed.json", "");  // another name, the same ids
  RunConfig config = with_tokenizer(3);
  config.tokenizer = path("renamed.json");
  expect_lacks(train(config, model).log, "renamed.json was");
}

TEST_F(ResumeContent, OldCheckpointsHaveAPathOnly) {
  train(with_tokenizer(2));
  make_old("ckpt/llama_v2-2steps");
  EXPECT_EQ(tokenizer_of_checkpoint("ckpt/llama_v2-2steps"), path("tok.json"));
  RunTrace resumed = train(with_tokenizer(3));
  EXPECT_EQ(resumed.steps, 3);
  expect_lacks(resumed.log, " W [");
  fs::remove(path("tok.json"));
  std::string message = user_error([&] { tokenizer_of_checkpoint("ckpt/llama_v2-2steps"); });
  expect_contains(message, "only its path, '" + path("tok.json") + "'");
  expect_contains(message, "--tokenizer");
}

TEST_F(ResumeContent, ChangedOptionsAreNamedInOneWarning) {
  train(options(2));
  RunConfig config = options(3);
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.beta2 = 0.9;
  config.train_batch_size = 2;
  config.lr = 0.5;
  std::string log = train(config).log;
  std::vector<std::string> warned = lines_with(log, " W [");
  ASSERT_EQ(warned.size(), 2u) << log;
  expect_contains(warned[0], "--train_batch_size was 4 and is 2; --beta2 was 0.95 and is 0.9");
  expect_contains(warned[1], "--lr 0.5: the checkpoint has 0.01");
  // Once more with the same: the schedule is still that of the first run.
  config.max_steps = 4;
  warned = lines_with(train(config).log, " W [");
  ASSERT_EQ(warned.size(), 1u);
  expect_contains(warned[0], "--lr 0.5: the checkpoint has 0.01");
  config.eval_only = true;  // trains nothing
  EXPECT_TRUE(lines_with(train(config).log, " W [").empty());
}

TEST_F(ResumeContent, OtherTextUnderTheSameNameIsWarnedAbout) {
  train(options(2));
  RunConfig config = options(3);
  config.resume_from_checkpoint = config.checkpoint_dir;
  write("copy.txt", read_file(path("text.txt")));
  config.dataset = path("copy.txt");
  EXPECT_TRUE(lines_with(train(config).log, " W [").empty());  // the same text under another name
  config.max_steps = 4;
  write("copy.txt", made_up_text(900));
  std::vector<std::string> warned = lines_with(train(config).log, " W [");
  ASSERT_EQ(warned.size(), 1u);
  expect_contains(warned[0], "the training text is not that of the checkpoint");
  expect_contains(warned[0], "training tokens there");
}

class BestValidation : public TrainingTest {};

TEST_F(BestValidation, IsSavedAndKept) {
  RunConfig config = options(4);
  config.validation_freq = 1;
  train(config);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-4steps"}) << "by step only";

  config.checkpoint_dir = {path("best")};
  config.num_kept_checkpoints = {"1"};
  config.best_val_loss = 100;
  // The first step has a rate of 0, the others ruin the weights.
  config.lr = 20;
  config.warmup = 0.9;
  config.lr_decay_style = "constant";
  config.validation_freq = 1;
  RunTrace trace = train(config);
  auto best = std::ranges::min_element(trace.validations, {},
                                       [](const std::string& loss) { return std::stod(loss); });
  auto step = best - trace.validations.begin() + 1;
  ASSERT_LT(step, 4);
  EXPECT_EQ(checkpoints("best"),
            (std::set<std::string>{cat("llama_v2-", step, "steps"), "llama_v2-4steps"}));
  auto run = nlohmann::json::parse(read_file(path("best/llama_v2-4steps/run.json")));
  EXPECT_EQ(run["best_validation"]["loss"].get<double>(), std::stod(*best));
  EXPECT_EQ(run["best_validation"]["checkpoint"], cat("llama_v2-", step, "steps"));

  // A resumed run knows it, whether it validates or not.
  config.validation_freq = 0;
  config.run_validation = false;
  config.max_steps = 5;
  config.resume_from_checkpoint = config.checkpoint_dir;
  train(config);
  EXPECT_EQ(checkpoints("best"),
            (std::set<std::string>{cat("llama_v2-", step, "steps"), "llama_v2-5steps"}));
}

TEST_F(BestValidation, ALossAboveTheRecordIsNotSaved) {
  RunConfig config = options(4);
  config.validation_freq = 1;
  config.best_val_loss = 0.5;
  train(config);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-4steps"});
  config.checkpoint_dir = {path("any")};
  config.best_val_loss = std::numeric_limits<double>::infinity();
  train(config);
  EXPECT_TRUE(checkpoints("any").contains("llama_v2-1steps"));
}

// PyTorch goes on with the rate that the next step would have had.
TEST_F(ResumeContent, ARateThatGoesByEpochsIsGivenAway) {
  RunConfig config = options(100);
  config.lr_decay_style = "step";
  config.epochs = 3;
  config.max_dataset_len = 8;
  const RunTrace trace = train(config);
  EXPECT_EQ(trace.epochs.back(), 3);
  const std::string checkpoint = path(cat("ckpt/llama_v2-", trace.steps, "steps"));
  EXPECT_EQ(CheckpointParameters(checkpoint).record().epoch, 4);
  config.epochs = 5;
  config.max_steps = trace.steps + 1;
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.checkpoint_dir = {path("more")};
  const std::string next = train(config).rates.at(0);
  testing::internal::CaptureStderr();
  convert_to_torch(checkpoint, path("torch"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(
      nlohmann::json(SavedState(path("torch")).numbers("optim.param_groups.0.lr").value().at(0))
          .dump(),
      next);
}

}  // namespace
}  // namespace tessera
