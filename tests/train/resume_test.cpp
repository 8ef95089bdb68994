// Checkpoints of a run: resuming to the bit, which one is taken, what does not fit, a full disk.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>

#include "base/interruption.h"
#include "base/log.h"
#include "base/save_request.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct ResumeCase {
  std::string name;
  std::string isa = "auto";
  bool bf16 = true, fp16 = false;
  int64_t accumulation = 1, epochs = 100, stop = 5, steps = 9;
  int words = 800;
  ModelType family = ModelType::kLlamaV2;
  std::string optimizer = "adamw";
};

class Resume : public TrainingTest, public testing::WithParamInterface<ResumeCase> {};

std::vector<std::string> tail(const std::vector<std::string>& lines, int64_t from) {
  return {lines.begin() + from, lines.end()};
}

TEST_P(Resume, GivesTheBitsOfAnUndisturbedRun) {
  const ResumeCase& c = GetParam();
  auto is_here = [&](cpu::Isa isa) { return name(isa) == c.isa && isa <= cpu::detect_isa(); };
  if (c.isa != "auto" && std::ranges::none_of(cpu::kIsas, is_here)) GTEST_SKIP() << "no " << c.isa;
  write("text.txt", made_up_text(c.words));
  RunConfig config = options(c.steps);
  config.cpu_isa = c.isa;
  config.bf16 = c.bf16;
  config.use_fp16 = c.fp16;
  config.gradient_accumulation_steps = c.accumulation;
  config.epochs = c.epochs;
  config.optimizer = c.optimizer;
  config.checkpoint_dir = {path("straight")};
  ModelConfig model = tiny_model_of(c.family);
  RunTrace straight = train(config, model);
  EXPECT_EQ(straight.end, RunEnd::kFinished);

  config.checkpoint_dir = config.resume_from_checkpoint = {path("ckpt")};
  config.max_steps = c.stop;
  RunTrace first = train(config, model);
  EXPECT_EQ(first.steps, c.stop);
  expect_contains(first.log, "No Checkpoints Found");
  config.max_steps = c.steps;
  RunTrace second = train(config, model);
  expect_contains(second.log, "Checkpoint loaded from " +
                                  path(cat("ckpt/", name(c.family), "-", c.stop, "steps")));

  EXPECT_EQ(second.losses, tail(straight.losses, c.stop));
  EXPECT_EQ(second.norms, tail(straight.norms, c.stop));
  EXPECT_EQ(second.rates, tail(straight.rates, c.stop));
  EXPECT_EQ(second.validations, straight.validations);
  EXPECT_EQ(second.fingerprint, straight.fingerprint);
  EXPECT_EQ(second.steps, straight.steps);
  EXPECT_EQ(second.position, straight.position);
  EXPECT_EQ(second.tokens_seen, straight.tokens_seen);
}

// 200 words are 65 windows: the 17th step of 4, or the 9th of 8, takes rows of two epochs.
INSTANTIATE_TEST_SUITE_P(
    Runs, Resume,
    testing::Values(
        ResumeCase{"bf16"}, ResumeCase{.name = "f32", .bf16 = false},
        ResumeCase{.name = "fp16", .fp16 = true}, ResumeCase{.name = "avx2", .isa = "avx2"},
        ResumeCase{.name = "accumulation", .accumulation = 3},
        ResumeCase{.name = "dropout", .accumulation = 2, .family = ModelType::kGpt2},
        ResumeCase{.name = "sgd", .optimizer = "sgd"},
        ResumeCase{.name = "lion", .fp16 = true, .accumulation = 2, .optimizer = "lion"},
        ResumeCase{.name = "before_an_epoch_ends", .stop = 13, .steps = 20, .words = 200},
        ResumeCase{.name = "after_an_epoch_ended",
                   .accumulation = 2,
                   .stop = 9,
                   .steps = 18,
                   .words = 200},
        ResumeCase{
            .name = "to_the_last_epoch_end", .epochs = 2, .stop = 17, .steps = 100, .words = 200}),
    [](const auto& test) { return test.param.name; });

class ResumeTest : public TrainingTest {};

TEST_F(ResumeTest, TheLossScaleIsKeptAndThePrecisionMayChange) {
  RunConfig config = options(5);
  config.resume_from_checkpoint = {path("ckpt")};
  auto saved = [&](int64_t step) {
    return nlohmann::json::parse(read_file(path(cat("ckpt/llama_v2-", step, "steps/run.json"))));
  };
  auto resume = [&](int64_t steps, bool fp16) {
    config.max_steps = steps;
    config.use_fp16 = fp16;
    train(config);
  };
  resume(5, true);
  EXPECT_EQ(saved(5).at("loss_scale"), (nlohmann::json{{"scale", 65536.0}, {"good_steps", 5}}));
  resume(7, true);
  EXPECT_EQ(saved(7).at("loss_scale").at("good_steps"), 7);
  resume(8, false);
  EXPECT_FALSE(saved(8).contains("loss_scale"));
  resume(9, true);
  EXPECT_LE(saved(9).at("loss_scale").at("good_steps"), 1);  // from the start again
}

TEST_F(ResumeTest, AnotherOptimizerIsRefused) {
  RunConfig config = options(2);
  config.optimizer = "sgd";
  train(config);
  EXPECT_EQ(nlohmann::json::parse(read_file(path("ckpt/llama_v2-2steps/run.json")))
                .at("options")
                .at("optimizer"),
            "sgd");
  config.resume_from_checkpoint = config.checkpoint_dir;
  for (const char* other : {"lion", "adamw"}) {  // which has a momentum too, which has not
    config.optimizer = other;
    std::string message = failure(config);
    expect_contains(message,
                    cat("checkpoint '", path("ckpt/llama_v2-2steps"),
                        "' was trained with --optimizer sgd, this run has --optimizer ", other));
    expect_contains(message, "give --optimizer sgd");
  }
}

TEST_F(ResumeTest, ACheckpointFromBeforeThereWereOptimizersIsOfAdamW) {
  RunConfig config = options(4);
  RunTrace straight = train(config);
  fs::path saved = path("ckpt/llama_v2-2steps");
  fs::remove_all(path("ckpt"));
  config.max_steps = 2;
  train(config);
  {
    CheckpointReader reader(saved);
    auto record = nlohmann::json::parse(reader.run_json());
    EXPECT_EQ(record.at("options").erase("optimizer"), 1u);
    EXPECT_EQ(record.at("options").erase("momentum"), 1u);
    save_boxes(path("ckpt"), "llama_v2", 2, WholeState(reader).boxes(), record.dump(), {},
               reader.origin());
  }
  config.max_steps = 4;
  config.resume_from_checkpoint = config.checkpoint_dir;
  EXPECT_EQ(train(config).fingerprint, straight.fingerprint);
  config.optimizer = "sgd";
  expect_contains(failure(config), "give --optimizer adamw");
}

TEST_F(ResumeTest, TakesTheNewestCompleteCheckpoint) {
  RunConfig config = options(6);
  config.checkpoint_freq = {"2"};
  RunTrace straight = train(config);
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"llama_v2-2steps", "llama_v2-4steps", "llama_v2-6steps"}));
  fs::remove(path("ckpt/llama_v2-6steps/manifest.json"));
  config.resume_from_checkpoint = config.checkpoint_dir;
  RunTrace again = train(config);
  expect_contains(again.log, path("ckpt/llama_v2-6steps/manifest.json") +
                                 " not found. Skipping this incomplete checkpoint");
  expect_contains(again.log, "Loading checkpoint from " + path("ckpt/llama_v2-4steps"));
  EXPECT_EQ(again.losses, tail(straight.losses, 4));
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
}

TEST_F(ResumeTest, WithoutAWholeCheckpointThereIsAnError) {
  RunConfig config = options(4);
  config.checkpoint_freq = {"2"};
  train(config);
  fs::resize_file(path("ckpt/llama_v2-4steps/state.safetensors"), 1000);
  fs::remove(path("ckpt/llama_v2-2steps/manifest.json"));
  EXPECT_THROW(train(config), UsageError) << "a fresh start beside them";
  for (const char* from : {"ckpt", "ckpt/llama_v2-4steps", "ckpt/llama_v2-2steps"}) {
    for (bool eval_only : {false, true}) {
      config.eval_only = eval_only;
      config.checkpoint_dir = {path("other")};
      config.resume_from_checkpoint = {path(from)};
      expect_contains(failure(config), "; there is no older one that is whole");
      EXPECT_FALSE(fs::exists(path("other/llama_v2-2steps")));
    }
  }
  config.resume_from_checkpoint = {path("mistyped")};
  expect_contains(failure(config), "--eval_only: there is no checkpoint in ");
  config.eval_only = false;
  expect_contains(train(config).log, "No Checkpoints Found");
}

TEST_F(ResumeTest, KeepsAsManyCheckpointsAsAskedFor) {
  RunConfig config = options(8);
  config.checkpoint_freq = {"2"};
  config.num_kept_checkpoints = {"2"};
  train(config);
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"llama_v2-6steps", "llama_v2-8steps"}));
}

TEST_F(ResumeTest, AFinishedRunIsLeftAsItIs) {
  RunTrace first = train(options(4));
  RunConfig config = options(3);  // fewer than there are
  config.resume_from_checkpoint = config.checkpoint_dir;
  RunTrace again = train(config);
  EXPECT_EQ(again.steps, 4);
  EXPECT_TRUE(again.losses.empty());
  EXPECT_EQ(again.fingerprint, first.fingerprint);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-4steps"});
}

TEST_F(ResumeTest, TheScheduleComesFromTheCheckpoint) {
  RunTrace straight = train(options(6));
  RunConfig config = options(3);
  config.checkpoint_dir = {path("other")};
  train(config);
  config.resume_from_checkpoint = {path("other")};
  config.max_steps = 6;
  config.lr = 0.5;
  config.min_lr = 0.1;
  config.warmup = 0.5;
  config.lr_decay_iters = 7;
  config.lr_decay_style = "linear";
  RunTrace resumed = train(config);
  for (const char* line : {"using checkpoint value 0.01 for learning rate",
                           "using checkpoint value 1e-05 for minimum learning rate",
                           "using checkpoint value 0.064 for warmup iterations",
                           "using checkpoint value 20 for total number of iterations",
                           "using checkpoint value cosine for decay style"}) {
    expect_contains(resumed.log, line);
  }
  EXPECT_EQ(resumed.rates, tail(straight.rates, 3));
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
}

TEST_F(ResumeTest, AModelOfAnotherShapeIsNamed) {
  train(options(1));
  RunConfig config = options(2);
  config.resume_from_checkpoint = config.checkpoint_dir;
  ModelConfig model = tiny_model();
  model.intermediate_size = 96;
  std::string message = failure(config, model);
  expect_contains(message, "model.layers.0.mlp.gate_proj.weight");
  expect_contains(message, "[64, 32]");
  expect_contains(message, "[96, 32]");

  model = tiny_model();
  model.num_layers = 1;
  expect_contains(failure(config, model), "its tensor 'model.layers.1.");
  model.num_layers = 3;
  expect_contains(failure(config, model), "it has no tensor 'model.layers.2.");

  model = tiny_model();
  model.num_heads = 2;  // the same tensors, other heads
  model.num_key_value_heads = 1;
  derive_shape(model);
  expect_contains(failure(config, model), "num_heads: 4 there, 2 in this run");
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-1steps"});  // nothing was touched
}

TEST_F(ResumeTest, OtherDataIsWarnedAbout) {
  train(options(1));
  RunConfig config = options(2);
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.seed = 3;
  expect_contains(train(config).log, "--seed was 12345 and is 3");
}

TEST_F(ResumeTest, ADamagedCheckpointIsRefused) {
  train(options(1));
  fs::path state = path("ckpt/llama_v2-1steps/state.safetensors");
  std::string content = read_file(state);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_file_atomic(state, content);
  RunConfig config = options(2);
  config.resume_from_checkpoint = config.checkpoint_dir;
  std::string message = failure(config);
  expect_contains(message, state.string());
  expect_contains(message, "damaged");
}

TEST_F(ResumeTest, NothingIsSavedWhereNothingIsWanted) {
  RunConfig config = options(2);
  config.save_ckpt = false;
  train(config);
  EXPECT_FALSE(fs::exists(path("ckpt")));
  config = options(2);
  config.checkpoint_dir = {};
  EXPECT_EQ(train(config).end, RunEnd::kFinished);
  EXPECT_FALSE(fs::exists(path("ckpt")));
}

TEST_F(ResumeTest, ADirectoryThatCannotBeWrittenStopsTheRunBeforeItTrains) {
  RunConfig config = options(2);
  config.checkpoint_dir = {path("text.txt") + "/ckpt"};
  std::string message = failure(config);
  expect_contains(message, "--checkpoint_dir");
  expect_contains(message, path("text.txt"));
  EXPECT_TRUE(failed().losses.empty());
}

// Files of at most so many bytes: a write beyond them fails as it does on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_ = nullptr;
};

TEST_F(ResumeTest, AFullDiskLosesNothing) {
  RunConfig config = options(8);
  config.checkpoint_dir = {path("straight")};
  RunTrace straight = train(config);
  config = options(3);
  train(config);

  config.max_steps = 8;
  config.checkpoint_freq = {"2"};
  config.resume_from_checkpoint = config.checkpoint_dir;
  std::string message;
  {
    FileSizeLimit limit(64 << 10);  // far above a metrics file, far below the weights
    message = failure(config);
  }
  // Steps 4 and 6 are warnings; the weights of a finished run may not be lost in silence.
  EXPECT_EQ(failed().losses, tail(straight.losses, 3));
  for (int step : {4, 6, 8})
    expect_contains(log(),
                    cat("Writing checkpoint to ", path("ckpt"), "/llama_v2-", step, "steps"));
  expect_contains(log(), "Checkpoint failed, training goes on: cannot write");
  expect_contains(message,
                  "training finished after step 8, but its last checkpoint could not be written");
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-3steps"});

  RunTrace resumed = train(config);
  EXPECT_EQ(resumed.losses, tail(straight.losses, 3));
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
}

TEST_F(ResumeTest, ACheckpointThatIsAskedForIsSavedAndSaid) {
  RunConfig config = options(4);
  config.async_checkpoint = "off";
  request_save();
  const RunTrace trace = train(config);
  EXPECT_EQ(lines_with(trace.log, std::string(kSavedAsAsked)).size(), 1u);
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"llama_v2-1steps", "llama_v2-4steps"}));
  config.checkpoint_dir = {path("full")};
  request_save();
  {
    FileSizeLimit limit(64 << 10);
    failure(config);
  }
  EXPECT_EQ(failed().losses, trace.losses);
  EXPECT_EQ(lines_with(log(), std::string(kNotSavedAsAsked)).size(), 1u);
  EXPECT_EQ(lines_with(log(), std::string(kSavedAsAsked)).size(), 0u);
  config.save_ckpt = false;
  request_save();
  EXPECT_EQ(lines_with(train(config).log, std::string(kSavedAsAsked)).size(), 1u)
      << "nobody is kept waiting";
}

// As who asks does until there is an answer.
TEST_F(ResumeTest, ACheckpointThatIsAskedForTwiceIsSavedOnce) {
  for (const char* beside : {"off", "on"}) {
    RunConfig config = options(4);
    config.async_checkpoint = beside;
    config.checkpoint_dir = {path(beside)};
    int written = 0;
    set_log_listener([&](LogLevel, std::string_view line) {
      if (line.starts_with("Writing checkpoint") && ++written == 1) request_save();
    });
    request_save();
    const RunTrace trace = train(config);
    set_log_listener({});
    EXPECT_EQ(written, 2) << trace.log;  // and the last one
    EXPECT_FALSE(take_save_request());
  }
}

TEST_F(ResumeTest, ACheckpointThatIsAskedForAheadOfTheEndIsTheLastOne) {
  RunConfig config = options(40);
  config.async_checkpoint = "off";
  set_log_listener([](LogLevel, std::string_view line) {
    if (line == kSavedAsAsked) request_interruption();
  });
  request_save();
  const RunTrace trace = train(config);
  set_log_listener({});
  clear_interruption();
  EXPECT_EQ(trace.end, RunEnd::kInterrupted);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-1steps"});
}

TEST_F(ResumeTest, MetricsThatCannotBeWrittenDoNotEndTheRun) {
  RunConfig config = options(40);
  config.save_ckpt = false;
  config.threads = 1;
  train(config);  // tokenizes without the limit
  FileSizeLimit limit(2000);
  RunTrace trace = train(config);  // checks that every line of the file is whole
  expect_contains(trace.log, "cannot write metrics");
  EXPECT_EQ(trace.steps, 40);
  EXPECT_GT(trace.losses.size(), 2u);
  EXPECT_LT(trace.losses.size(), 39u);
}

}  // namespace
}  // namespace tessera
