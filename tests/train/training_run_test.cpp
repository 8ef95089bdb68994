// A run from options to its end: length, validation, output, updates that are not finite.
#include "train/training_run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <regex>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "data/sample_order.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Lines of a log that contain `part`, without their prefix.
std::vector<std::string> lines_with(const std::string& log, const std::string& part) {
  std::vector<std::string> lines;
  for (std::string_view line : split(log, '\n')) {
    if (line.find(part) == std::string_view::npos) continue;
    size_t message = line.find("] ");
    lines.emplace_back(line.substr(message + 2));
  }
  return lines;
}

using TrainingRunTest = TrainingTest;

TEST_F(TrainingRunTest, LearnsTheText) {
  RunConfig config = options(200);
  config.lr_decay_iters = 200;
  RunTrace trace = train(config);
  ASSERT_EQ(trace.losses.size(), 200u);
  EXPECT_GT(std::stod(trace.losses.front()), 5.5);
  EXPECT_LT(std::stod(trace.losses.back()), 2.5);
  EXPECT_LT(std::stod(trace.validations.back()), 2.5);
}

TEST_F(TrainingRunTest, WholeRunsAreTheSameAgainAndWithAnyNumberOfThreads) {
  for (bool bf16 : {true, false}) {
    RunConfig config = options(6);
    config.bf16 = bf16;
    config.gradient_accumulation_steps = 2;
    config.save_ckpt = false;
    config.threads = 1;
    RunTrace expected = train(config, odd_model());
    for (int threads : {1, 2, 3, 5}) {
      config.threads = threads;
      RunTrace trace = train(config, odd_model());
      EXPECT_EQ(trace.losses, expected.losses) << threads;
      EXPECT_EQ(trace.validations, expected.validations) << threads;
      EXPECT_EQ(trace.fingerprint, expected.fingerprint) << threads;
    }
    config.seed = 1;
    EXPECT_NE(train(config, odd_model()).losses, expected.losses);
  }
}

TEST_F(TrainingRunTest, DropoutBelongsToSamples) {
  ModelConfig gpt2 = tiny_model_of(ModelType::kGpt2), keeps = gpt2;
  keeps.resid_pdrop = keeps.embd_pdrop = keeps.attn_pdrop = 0;
  RunConfig config = options(6);
  config.bf16 = config.save_ckpt = false;
  RunTrace trace = train(config, gpt2);
  EXPECT_NE(trace.losses, train(config, keeps).losses);
  config.threads = 1;
  EXPECT_EQ(trace.losses, train(config, gpt2).losses);
  // Two micro-batches of two are the same samples, and draw the same numbers.
  config.train_batch_size = config.gradient_accumulation_steps = 2;
  RunTrace halves = train(config, gpt2);
  for (size_t i = 0; i < trace.losses.size(); ++i)
    EXPECT_NEAR(std::stod(halves.losses[i]), std::stod(trace.losses[i]), 1e-4) << i;
}

TEST_F(TrainingRunTest, EpochsEndTraining) {
  write("text.txt", made_up_text(200));  // 65 windows
  RunConfig config = options(1000);
  config.epochs = 2;
  config.lr_decay_style = "step";
  config.step_lr_gamma = 0.5;
  RunTrace trace = train(config);
  // 130 windows: 32 steps of 4 and one of 2. Every token but the first is predicted once an epoch.
  EXPECT_EQ(trace.steps, 33);
  EXPECT_EQ(trace.position, 132);
  EXPECT_EQ(trace.tokens_seen % 2, 0);
  EXPECT_EQ(trace.tokens_seen / 2,
            static_cast<int64_t>(made_up_text(200).size()));  // and the end of text
  // The rate printed is that of the next step, and a step belongs to the epoch that it begins in.
  EXPECT_EQ(trace.rates.front(), "0.01");
  EXPECT_EQ(trace.rates[15], "0.01");
  EXPECT_EQ(trace.rates[16], "0.005");
  EXPECT_EQ(trace.rates[31], "0.005");
}

TEST_F(TrainingRunTest, AShortLastBatchCountsItsOwnRowsOnly) {
  write("text.txt", made_up_text(200));  // 65 windows: 16 steps of 4, then one row
  RunConfig config = options(1000);
  config.epochs = 1;
  RunTrace trace = train(config);
  ASSERT_EQ(trace.steps, 17);
  auto last = lines_with(trace.log, "Batch 16 Loss")[0];
  EXPECT_TRUE(std::isfinite(std::stod(trace.losses.back()))) << last;
  config.gradient_accumulation_steps = 3;  // the sixth step has two micro-batches
  config.save_ckpt = false;
  RunTrace accumulated = train(config);
  EXPECT_EQ(accumulated.steps, 6);
  EXPECT_EQ(accumulated.tokens_seen, trace.tokens_seen);
}

TEST_F(TrainingRunTest, ValidatesWhenAskedAndAtTheEndOfEveryEpoch) {
  RunConfig config = options(7);
  config.save_ckpt = false;
  config.validation_freq = 3;
  EXPECT_EQ(train(config).validations.size(), 3u);  // after 3, 6 and at the end
  config.run_validation = false;
  EXPECT_EQ(train(config).validations.size(), 2u);
  config.validation_freq = 0;
  EXPECT_EQ(train(config).validations.size(), 0u);
  config.run_validation = true;
  config.max_steps = 1000;
  config.epochs = 2;
  EXPECT_EQ(train(config).validations.size(), 2u);

  write("held_out.txt", made_up_text(300, 5));
  config.validation_dataset = path("held_out.txt");
  config.max_steps = 2;
  RunTrace trace = train(config);
  EXPECT_HAS(trace.log, "Batch 1 Validation loss: " + trace.validations[0]);
  double perplexity = std::exp(std::stod(trace.validations[0]));
  EXPECT_HAS(trace.log,
             cat("Batch 1 Validation perplexity: ", format("%.6f", perplexity).substr(0, 5)));
}

TEST_F(TrainingRunTest, EvalOnlyTakesTheWeightsOfTheCheckpointAndNoStep) {
  RunTrace trained = train(options(20));
  RunConfig config = options(20);
  config.eval_only = true;
  config.resume_from_checkpoint = config.checkpoint_dir;
  RunTrace trace = train(config);
  EXPECT_TRUE(trace.losses.empty());
  EXPECT_EQ(trace.validations, trained.validations);
  EXPECT_EQ(trace.fingerprint, trained.fingerprint);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"llama_v2-20steps"});

  config.validation_fraction = 0;
  EXPECT_HAS(failure(config), "there is no validation text");
}

TEST_F(TrainingRunTest, ProgressLinesFollowTheGrammar) {
  RunConfig config = options(70);
  config.save_ckpt = false;
  config.logging_freq = 10;
  config.logging_freq_for_avg = 20;
  RunTrace trace = train(config);
  std::vector<std::string> lines = lines_with(trace.log, " Loss: ");
  ASSERT_EQ(lines.size(), 8u);  // batches 0, 10, ... 60 and the last
  std::regex grammar(
      R"(Batch (\d+) Loss: (\d+\.\d{5}), Speed: \d+\.\d\d samples/sec, lr: (\d\.\d{6}), gradnorm: \d+\.\d{4}, Tokens/s: \d+, Memory: [\d.]+ MiB, Left: .*)");
  ScheduleOptions curve;
  curve.lr = config.lr;
  curve.min_lr = config.min_lr;
  curve.decay_steps = 20;
  curve.warmup = config.warmup;
  for (const std::string& line : lines) {
    std::smatch part;
    ASSERT_TRUE(std::regex_match(line, part, grammar)) << line;
    int64_t batch = std::stoll(part[1]);
    EXPECT_EQ(part[2], format("%.5f", std::stod(trace.losses[static_cast<size_t>(batch)])));
    EXPECT_EQ(part[3], format("%.6f", Schedule(curve).rate(batch + 1)));  // the next step's
  }
  std::vector<std::string> averages = lines_with(trace.log, "Running Avg");
  ASSERT_EQ(averages.size(), 2u);  // after 30 + 20 and 30 + 40 steps
  EXPECT_TRUE(std::regex_match(
      averages[0],
      std::regex(
          R"(Batch 49 Running Avg Speed: \d+\.\d\d samples/sec, Running Avg Model TFLOPS/GPU: \d+\.\d\d)")))
      << averages[0];
  EXPECT_HAS(trace.log, "Created model with total parameters: 37792 (0.00 B)");
}

TEST_F(TrainingRunTest, MemoryIsPlannedExactlyAndPrintedBesideThePeak) {
  RunConfig config = options(2);
  config.save_ckpt = false;
  RunTrace trace = train(config);
  EXPECT_EQ(lines_with(trace.log, "Memory: planned = allocated = ").size(), 1u);
  EXPECT_EQ(lines_with(trace.log, "Peak resident memory of the process: ").size(), 1u);
  EXPECT_HAS(trace.log, "First step done ");
  config.memory = 100'000;
  std::string message = failure(config);
  EXPECT_HAS(message, "--memory");
  EXPECT_HAS(message, "more than");
}

TEST_F(TrainingRunTest, RecomputationAndOffloadChangeNothingButMemory) {
  RunConfig config = options(4);
  config.save_ckpt = config.activation_checkpointing = false;
  RunTrace expected = train(config);
  EXPECT_EQ(lines_with(expected.log, "far arena").size(), 0u);
  config.activation_checkpointing = config.offload_activations = config.cpu_offload = true;
  config.activation_loading_horizon = 0;
  RunTrace trace = train(config);
  EXPECT_EQ(trace.losses, expected.losses);
  EXPECT_EQ(trace.norms, expected.norms);
  EXPECT_EQ(trace.validations, expected.validations);
  EXPECT_EQ(trace.fingerprint, expected.fingerprint);
  EXPECT_EQ(lines_with(trace.log, "far arena").size(), 1u);
}

TEST_F(TrainingRunTest, BaselinesStandBesideTheModel) {
  write("held_out.txt", made_up_text(300, 5));
  RunConfig config = options(5);
  config.save_ckpt = false;
  config.compare_baselines = true;
  EXPECT_HAS(failure(config), "--validation_dataset");
  config.validation_dataset = path("held_out.txt");
  std::string log = train(config).log;
  for (const char* what : {"unigram model", "bigram model", "gzip -9", "this model"})
    EXPECT_HAS(log, what);
}

// A run whose embedding has a NaN in the row of the byte 'Z', which only chosen windows hold.
class Poisoned : public TrainingTest {
 protected:
  // Puts a Z into the windows of these steps (one window a step) and leaves a checkpoint of step 0
  // with the bad row.
  RunConfig poisoned_options(const std::set<int64_t>& bad_steps) {
    RunConfig config = options(0);
    config.train_batch_size = 1;
    config.run_validation = false;
    config.validation_fraction = 0;
    std::string text = made_up_text(100);
    auto windows = static_cast<int64_t>((text.size() + 1 - 2) / 16 + 1);
    SampleOrder order(static_cast<uint64_t>(config.seed), windows, true);
    for (int64_t step : bad_steps) {
      text[static_cast<size_t>(order.at(step).window) * 16 + 3] = 'Z';
    }
    write("text.txt", text);
    train(config);
    poison();
    config.resume_from_checkpoint = config.checkpoint_dir;
    return config;
  }

  void poison() {
    fs::path saved = path("ckpt/llama_v2-0steps");
    std::string record;
    std::vector<std::vector<std::byte>> contents;
    std::vector<TensorView> views;
    {
      CheckpointReader reader(saved);
      record = reader.run_json();
      for (const TensorInfo& t : reader.state().tensors()) {
        std::span<const std::byte> bytes = reader.state().bytes(t);
        contents.emplace_back(bytes.begin(), bytes.end());
        views.push_back({t.name, t.dtype, t.shape, contents.back().data()});
        if (t.name != "model.embed_tokens.weight") continue;
        auto* table = reinterpret_cast<float*>(contents.back().data());
        table['Z' * 32 + 1] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    save_checkpoint(path("ckpt"), "llama_v2", 0, views, record);
  }
};

std::string flags(const std::vector<bool>& ok) {
  std::string text;
  for (bool b : ok) text += b ? '.' : 'x';
  return text;
}

TEST_F(Poisoned, BadUpdatesAreSkippedAndReported) {
  for (bool bf16 : {false, true}) {
    RunConfig config = poisoned_options({2, 3, 6});
    config.bf16 = bf16;
    config.max_steps = 8;
    config.save_ckpt = false;
    RunTrace trace = train(config);
    EXPECT_EQ(flags(trace.ok), "..xx..x.");
    EXPECT_EQ(trace.losses[2], "null");
    std::vector<std::string> warnings = lines_with(trace.log, "not finite");
    ASSERT_EQ(warnings.size(), 3u);
    // In f32 the lookup shows it first, in bf16 the cast of the table.
    std::string where = bf16 ? "convert in embed (forward)" : "embedding in embed (forward)";
    EXPECT_EQ(warnings[0],
              "Step 2: loss or gradient norm is not finite; the update was skipped (1 in a row). "
              "First non-finite value: " +
                  where);
    EXPECT_HAS(warnings[1], "Step 3: ");
    EXPECT_HAS(warnings[1], "(2 in a row)");
    EXPECT_HAS(warnings[2], "Step 6: ");
    EXPECT_HAS(warnings[2], "(1 in a row)");
    EXPECT_EQ(lines_with(trace.log, ", skipped").size(), 3u);
  }
}

TEST_F(Poisoned, TooManyInARowStopTheRunAndNameTheLastGoodCheckpoint) {
  RunConfig config = poisoned_options({3, 4});
  config.max_steps = 8;
  config.checkpoint_freq = 2;
  config.max_skipped_steps = 1;
  std::string message = failure(config);
  EXPECT_EQ(flags(failed().ok), "...xx");
  EXPECT_HAS(
      message,
      "stopped at step 4: 2 updates in a row were not finite, more than --max_skipped_steps 1");
  EXPECT_HAS(message, "in embed (forward)");
  EXPECT_HAS(message, "the last good checkpoint is " + path("ckpt/llama_v2-2steps"));
  // The checkpoint of step 4 was written between the two bad steps: it counts one of them.
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"llama_v2-0steps", "llama_v2-2steps", "llama_v2-4steps"}));

  RunTrace tolerant;
  config.max_skipped_steps = 2;
  config.resume_from_checkpoint = path("ckpt/llama_v2-2steps");
  tolerant = train(config);
  EXPECT_EQ(flags(tolerant.ok), ".xx...");
}

TEST_F(Poisoned, TheCountSurvivesAResume) {
  RunConfig config = poisoned_options({3, 4});
  config.max_skipped_steps = 1;
  config.checkpoint_freq = 2;
  config.num_kept_checkpoints = 1;
  config.max_steps = 4;  // ends behind the first bad step
  RunTrace first = train(config);
  EXPECT_EQ(flags(first.ok), "...x");
  // Only one is kept, but not while updates are skipped: the good one is still needed.
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"llama_v2-2steps", "llama_v2-4steps"}));
  config.max_steps = 8;
  std::string message = failure(config);
  EXPECT_EQ(flags(failed().ok), "x");
  EXPECT_HAS(message, "2 updates in a row");
  EXPECT_HAS(message, "the last good checkpoint is " + path("ckpt/llama_v2-2steps"));
}

TEST_F(Poisoned, AResumeBetweenTwoBadMicroBatchesChangesNoBit) {
  // Two micro-batches a step: the second of step 3 is bad, and the first of step 4.
  RunConfig config = poisoned_options({7, 8});
  config.gradient_accumulation_steps = 2;
  config.max_skipped_steps = 2;
  config.max_steps = 8;
  config.save_ckpt = false;
  RunTrace straight = train(config);
  EXPECT_EQ(flags(straight.ok), "...xx...");
  config.save_ckpt = true;
  config.max_steps = 4;
  EXPECT_EQ(flags(train(config).ok), "...x");
  config.max_steps = 8;
  RunTrace resumed = train(config);
  EXPECT_EQ(flags(resumed.ok), "x...");
  EXPECT_HAS(resumed.log,
             "Step 4: loss or gradient norm is not finite; the update was skipped (2 "
             "in a row)");
  EXPECT_EQ(resumed.losses,
            (std::vector<std::string>{straight.losses.begin() + 4, straight.losses.end()}));
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
}

TEST_F(TrainingRunTest, OverflowsOfF16AreNoFailuresUntilTheLossScaleIsLowest) {
  RunConfig config = options(40);
  config.use_fp16 = true;
  config.max_skipped_steps = 1;
  config.save_ckpt = false;
  RunTrace good = train(config);
  EXPECT_TRUE(good.ok.back());
  std::string metrics = read_file(path("metrics"));
  EXPECT_HAS(metrics.substr(0, metrics.find('\n')), "\"loss_scale\":65536,\"ok\":");
  EXPECT_HAS(good.log, ", Loss scale: 65536");

  ModelConfig overflows = tiny_model();  // in the forward pass, whatever the scale is
  overflows.initializer_range = 1e5;
  EXPECT_HAS(failure(config, overflows), "stopped at step 17: 2 updates in a row were not finite");
  EXPECT_EQ(failed().ok, std::vector<bool>(18, false));  // 2^16 ... 2^1, and twice at 2^0
  EXPECT_HAS(log(),
             "Step 0: gradients overflow at loss scale 65536; the update was skipped, the "
             "scale is now 32768");
  EXPECT_HAS(log(), "Step 15: gradients overflow at loss scale 2; ");
  EXPECT_HAS_NOT(log(), "Step 16: gradients overflow");
}

TEST_F(TrainingRunTest, TheZLossStandsApartInTheMetrics) {
  RunConfig config = options(4);
  config.save_ckpt = false;
  RunTrace plain = train(config);
  EXPECT_HAS_NOT(read_file(path("metrics")), "z_loss");
  config.z_loss = 0.01;
  RunTrace trace = train(config);
  std::string metrics = read_file(path("metrics"));
  auto first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_NEAR(first.at("z_loss").get<double>(), 0.01 * std::log(300) * std::log(300), 0.02);
  EXPECT_EQ(trace.losses[0], plain.losses[0]);
  EXPECT_NE(trace.losses[3], plain.losses[3]);
}

TEST_F(TrainingRunTest, ASignalFinishesTheStepAndSaves) {
  for (int signal : {SIGINT, SIGTERM}) {
    clear_interruption();
    RunConfig config = options(1'000'000);
    config.epochs = 1'000'000;
    config.checkpoint_dir = config.resume_from_checkpoint = path(cat("ckpt", signal));
    fs::remove(path("metrics"));
    std::thread sender([&] {
      while (!fs::exists(path("metrics")) || fs::file_size(path("metrics")) < 500) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ::kill(::getpid(), signal);
    });
    RunTrace first = train(config);
    sender.join();
    EXPECT_EQ(first.end, RunEnd::kInterrupted);
    EXPECT_EQ(first.steps, static_cast<int64_t>(first.losses.size()));
    EXPECT_TRUE(first.validations.empty());
    EXPECT_HAS(first.log, cat("Interrupted after step ", first.steps, "; saved."));
    EXPECT_EQ(checkpoints(cat("ckpt", signal)),
              std::set<std::string>{cat("llama_v2-", first.steps, "steps")});

    clear_interruption();
    config.max_steps = first.steps + 3;
    RunTrace second = train(config);
    config.checkpoint_dir = config.resume_from_checkpoint = "";
    RunTrace straight = train(config);
    EXPECT_EQ(second.losses,
              (std::vector<std::string>{straight.losses.end() - 3, straight.losses.end()}));
    EXPECT_EQ(second.fingerprint, straight.fingerprint);
  }
}

}  // namespace
}  // namespace tessera
