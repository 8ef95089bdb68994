// A run from options to its end: length, validation, output, signals.
#include "train/training_run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <regex>
#include <thread>

#include "tests/runtime/delayed_backend.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(trace.position, 130);
  EXPECT_EQ(trace.tokens_seen % 2, 0);
  EXPECT_EQ(trace.tokens_seen / 2,
            static_cast<int64_t>(made_up_text(200).size()));  // and the end of text
  // A step belongs to the epoch that it begins in; a progress line shows the rate of the next step.
  EXPECT_EQ(trace.rates[16], "0.01");
  EXPECT_EQ(trace.rates[17], "0.005");
  EXPECT_EQ(trace.rates[32], "0.005");
  EXPECT_EQ(trace.epochs[16], 1);
  EXPECT_EQ(trace.epochs[17], 2);
  EXPECT_EQ(trace.epochs[32], 2);
  expect_contains(lines_with(trace.log, "Batch 16 Loss")[0], "lr: 0.005000");
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
  config.max_steps = 6;  // the last one too
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
  expect_contains(trace.log, "Batch 1 Validation loss: " + trace.validations[0]);
  double perplexity = std::exp(std::stod(trace.validations[0]));
  expect_contains(trace.log,
                  cat("Batch 1 Validation perplexity: ", format("%.6f", perplexity).substr(0, 5)));
}

TEST_F(TrainingRunTest, EvalOnlyTakesTheWeightsOfTheCheckpointAndNoStep) {
  RunConfig config = options(20);
  for (bool bf16 : {false, true}) {
    for (bool offload : {false, true}) {
      config = options(20);
      config.bf16 = bf16;
      config.cpu_offload = offload;
      config.checkpoint_dir = {path(cat("eval", bf16, offload))};
      RunTrace trained = train(config);
      config.eval_only = true;
      config.optimizer = "lion";  // nobody asks
      config.resume_from_checkpoint = config.checkpoint_dir;
      RunTrace trace = train(config);
      EXPECT_TRUE(trace.losses.empty());
      EXPECT_EQ(trace.validations, trained.validations);
      // Only weights, and no masters of those that are rounded.
      auto kib_of_parameters = [](const std::string& log) {
        std::smatch found;
        EXPECT_TRUE(std::regex_search(log, found, std::regex(R"(\(parameters ([\d.]+) KiB)")))
            << log;
        return std::stod(found[1]);
      };
      EXPECT_EQ(kib_of_parameters(trace.log), kib_of_parameters(trained.log) / (bf16 ? 2 : 1));
      EXPECT_EQ(lines_with(trace.log, ", moments 0 B, gradients 0 B, arena ").size(), 1u);
    }
  }

  config.validation_fraction = 0;
  expect_contains(failure(config), "there is no validation text");
}

TEST_F(TrainingRunTest, ThatThereIsNothingToValidateOnIsSaid) {
  RunConfig config = options(1);
  config.save_ckpt = false;
  config.validation_freq = 1;
  const std::string said = "--validation_freq 1 has no effect: there is no validation data";
  config.validation_fraction = 0.1;
  expect_lacks(train(config).log, said);
  config.validation_fraction = 0;
  expect_contains(train(config).log, said);
  config.use_synthetic_data = true;
  expect_lacks(train(config).log, said);
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
      R"(Batch (\d+) Loss: (\d+\.\d{5}), Speed: \d+\.\d\d samples/sec, lr: (\d\.\d{6}), gradnorm: \d+\.\d{4}, Tokens/s: \d+, TFLOPS/GPU: [\d.e-]+, Memory: [\d.]+ [MG]iB, Left: .*)");
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
  ASSERT_EQ(averages.size(), 2u);  // after 40 and 60 steps
  EXPECT_TRUE(std::regex_match(
      averages[0],
      std::regex(
          R"(Batch 39 Running Avg Speed: \d+\.\d\d samples/sec, Running Avg Model TFLOPS/GPU: \d+\.\d\d, Running Avg Hardware TFLOPS/GPU: \d+\.\d\d)")))
      << averages[0];
  expect_contains(trace.log, "Created model with total parameters: 37792 (0.00 B)");
}

TEST_F(TrainingRunTest, MetricsHoldTheRateOfTheUpdateAndProgressThatOfTheNext) {
  RunConfig config = options(8);
  config.save_ckpt = false;
  config.warmup = 0.25;  // 5 of 20 steps
  RunTrace trace = train(config);
  ASSERT_EQ(trace.rates.size(), 8u);
  EXPECT_EQ(std::stod(trace.rates[0]), 0);  // the first step of a warm-up changes nothing
  for (size_t i = 0; i < 5; ++i)
    EXPECT_DOUBLE_EQ(std::stod(trace.rates[i]), config.lr * static_cast<double>(i) / 5) << i;
  std::vector<std::string> lines = lines_with(trace.log, " Loss: ");
  for (size_t i = 0; i + 1 < trace.rates.size(); ++i)
    expect_contains(lines[i], format("lr: %.6f", std::stod(trace.rates[i + 1])));
  auto last = nlohmann::json::parse(split(trim(read_file(path("metrics"))), '\n').back());
  EXPECT_EQ(last.at("tokens_seen"), trace.tokens_seen);  // of the validation at the end
  EXPECT_EQ(last.at("epoch"), 1);
}

TEST_F(TrainingRunTest, AFloorAboveThePeakIsSaidWhereTheRunBegins) {
  RunConfig config = options(2);
  EXPECT_TRUE(lines_with(train(config).log, "is below --min_lr").empty());
  config.checkpoint_dir = {path("other")};
  config.lr = 1e-6;
  EXPECT_EQ(lines_with(train(config).log, "--lr 1e-06 is below --min_lr 1e-05").size(), 1u);
}

TEST_F(TrainingRunTest, MemoryIsPlannedExactlyAndPrintedBesideThePeak) {
  RunConfig config = options(2);
  config.save_ckpt = false;
  RunTrace trace = train(config);
  EXPECT_EQ(lines_with(trace.log, "Memory: planned = allocated = ").size(), 1u);
  EXPECT_EQ(lines_with(trace.log, "Peak resident memory of the process: ").size(), 1u);
  expect_contains(trace.log, "First step done ");
  config.memory = 100'000;
  std::string message = failure(config);
  expect_contains(message, "--memory");
  expect_contains(message, "more than");
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
  expect_contains(failure(config), "--validation_dataset");
  EXPECT_TRUE(failed().losses.empty()) << "before anything is trained";
  config.validation_dataset = path("held_out.txt");
  std::string log = train(config).log;
  for (const char* what : {"unigram model", "bigram model", "gzip -9", "this model"})
    expect_contains(log, what);
}

TEST_F(TrainingRunTest, BaselinesTakeTheValidationThatHasSeenAllText) {
  write("held_out.txt", made_up_text(300, 5));
  RunConfig config = options(5);
  config.save_ckpt = false;
  config.compare_baselines = true;
  config.validation_dataset = path("held_out.txt");
  config.validation_batches = 1;
  RunTrace twice = train(config);
  expect_contains(lines_with(twice.log, "A validation reads").at(0), "reads 4 of ");
  EXPECT_EQ(twice.validations.size(), 2u);  // one batch at the end, then all for the comparison
  config.validation_batches = 1000;
  RunTrace once = train(config);
  EXPECT_EQ(once.validations, std::vector<std::string>{twice.validations[1]});
  EXPECT_EQ(lines_with(once.log, "this model"), lines_with(twice.log, "this model"));
  config.eval_only = true;
  EXPECT_EQ(train(config).validations.size(), 1u);
}

TEST_F(TrainingRunTest, TheZLossStandsApartInTheMetrics) {
  RunConfig config = options(4);
  config.save_ckpt = false;
  RunTrace plain = train(config);
  expect_lacks(read_file(path("metrics")), "z_loss");
  config.z_loss = 0.01;
  RunTrace trace = train(config);
  std::string metrics = read_file(path("metrics"));
  auto first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_NEAR(first.at("z_loss").get<double>(), 0.01 * std::log(300) * std::log(300), 0.02);
  EXPECT_EQ(trace.losses[0], plain.losses[0]);
  EXPECT_NE(trace.losses[3], plain.losses[3]);
}

TEST_F(TrainingRunTest, ASignalFinishesTheStepAndSaves) {
  take_signals();  // before there are other threads
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, SIG_DFL);  // a shell ignores some of them for what it starts behind itself
    clear_interruption();
    RunConfig config = options(1'000'000);
    config.epochs = 1'000'000;
    config.checkpoint_dir = config.resume_from_checkpoint = {path(cat("ckpt", signal))};
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
    expect_contains(first.log, cat("Interrupted after step ", first.steps, "; saved."));
    EXPECT_EQ(checkpoints(cat("ckpt", signal)),
              std::set<std::string>{cat("llama_v2-", first.steps, "steps")});

    clear_interruption();
    config.max_steps = first.steps + 3;
    RunTrace second = train(config);
    config.checkpoint_dir = config.resume_from_checkpoint = {};
    RunTrace straight = train(config);
    EXPECT_EQ(second.losses,
              (std::vector<std::string>{straight.losses.end() - 3, straight.losses.end()}));
    EXPECT_EQ(second.fingerprint, straight.fingerprint);
    std::this_thread::sleep_for(2 * kSameSignal);  // sooner, the next would belong to this one
  }
}

TEST_F(TrainingRunTest, AnEvaluationThatIsGivenUpHasSavedNothing) {
  RunConfig config = options(3);
  train(config);
  config.eval_only = true;
  config.validation_dataset = path("text.txt");
  config.resume_from_checkpoint = config.checkpoint_dir;
  request_interruption();
  const RunTrace trace = train(config);
  EXPECT_EQ(trace.end, RunEnd::kInterrupted);
  expect_contains(trace.log, "Interrupted: the evaluation is given up");
  EXPECT_EQ(trace.log.find("saved"), std::string::npos);
}

TEST_F(TrainingRunTest, ARequestBeforeTheFirstStepTrainsNothing) {
  for (const char* resumed : {"", "ckpt"}) {
    RunConfig config = options(5);
    if (*resumed) {
      clear_interruption();
      train(config);
      config.resume_from_checkpoint = config.checkpoint_dir;
      config.max_steps = 10;
    }
    auto before = *resumed ? checkpoints() : std::set<std::string>{};
    request_interruption();
    RunTrace trace = train(config);
    EXPECT_EQ(trace.end, RunEnd::kInterrupted);
    EXPECT_TRUE(trace.losses.empty());
    expect_contains(trace.log, "Interrupted before the first step: there is nothing to save");
    if (*resumed)
      EXPECT_EQ(checkpoints(), before);
    else
      EXPECT_FALSE(fs::exists(path("ckpt")) && !fs::is_empty(path("ckpt")));
  }
}

// Runs on a device of which the results come a step late.
class RunsAhead : public TrainingTest {
 protected:
  Backend& device_of(cpu::CpuBackend& cpu) override {
    if (!ahead_) return cpu;
    device_ = std::make_unique<DelayedBackend>(cpu.kernels(), 3, PlanOptions{});
    return *device_;
  }
  bool ahead_ = false;
  std::unique_ptr<DelayedBackend> device_;
};

TEST_F(RunsAhead, ARunIsThatOfTheCpu) {
  write("text.txt", made_up_text(300));
  RunConfig config = options(7);
  config.gradient_accumulation_steps = 2;
  config.validation_freq = 3;
  config.checkpoint_freq = {"2"};
  RunTrace expected = train(config);
  std::filesystem::remove_all(path("ckpt"));
  ahead_ = true;
  RunTrace late = train(config);
  EXPECT_GT(device_->begun_ahead(), 0);
  EXPECT_EQ(late.losses, expected.losses);
  EXPECT_EQ(late.norms, expected.norms);
  EXPECT_EQ(late.rates, expected.rates);
  EXPECT_EQ(late.validations, expected.validations);
  EXPECT_EQ(late.fingerprint, expected.fingerprint);
  EXPECT_EQ(late.tokens_seen, expected.tokens_seen);
  EXPECT_EQ(late.position, expected.position);
  EXPECT_EQ(lines_with(late.log, "Writing"), lines_with(expected.log, "Writing"));
  // A run that went on from a checkpoint in between is the same, too.
  config.resume_from_checkpoint = {path("ckpt/llama_v2-4steps")};
  config.checkpoint_dir = {path("again")};
  EXPECT_EQ(train(config).fingerprint, expected.fingerprint);
}

TEST_F(RunsAhead, ARequestToEndFinishesTheStepsThatWereBegunAndSaves) {
  RunConfig config = options(1'000'000);
  config.epochs = 1'000'000;
  ahead_ = true;
  std::thread sender([&] {
    while (!fs::exists(path("metrics")) || fs::file_size(path("metrics")) < 500)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    request_interruption();
  });
  RunTrace first = train(config);
  sender.join();
  EXPECT_EQ(first.end, RunEnd::kInterrupted);
  EXPECT_EQ(first.steps, static_cast<int64_t>(first.losses.size()));
  EXPECT_EQ(checkpoints(), std::set<std::string>{cat("llama_v2-", first.steps, "steps")});
  clear_interruption();
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.max_steps = first.steps + 3;
  uint64_t resumed = train(config).fingerprint;
  config.checkpoint_dir = config.resume_from_checkpoint = {};
  ahead_ = false;
  EXPECT_EQ(train(config).fingerprint, resumed);
}

}  // namespace
}  // namespace tessera
