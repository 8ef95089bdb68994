#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/interruption.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/programs/tiny_model.h"
#include "train/training_run.h"

namespace tessera {

// What a run is called that is started as part of a job, TrainingTest::set_job.
inline const std::string kJob = "00112233445566778899aabbccddeeff";

// `words` words of a small vocabulary, a line each ten, as a function of the seed.
inline std::string made_up_text(int words, uint64_t seed = 1) {
  const char* vocabulary[] = {"the", "quick", "brown", "fox",   "jumps", "over", "lazy",  "dogs",
                              "and", "cats",  "while", "birds", "sing",  "of",   "spring"};
  std::string text;
  for (int i = 0; i < words; ++i) {
    text += vocabulary[random_below(seed, 0, static_cast<uint64_t>(i), 15)];
    text += i % 10 == 9 ? '\n' : ' ';
  }
  return text;
}

// Lines of a log that contain `part`, without their prefix.
inline std::vector<std::string> lines_with(const std::string& log, const std::string& part) {
  std::vector<std::string> lines;
  for (std::string_view line : split(log, '\n')) {
    if (line.find(part) == std::string_view::npos) continue;
    size_t message = line.find("] ");
    lines.emplace_back(line.substr(message + 2));
  }
  return lines;
}

// What a run left behind.
struct RunTrace {
  RunEnd end = RunEnd::kFinished;
  std::string log;                                             // standard error
  std::vector<std::string> losses, norms, rates, validations;  // as written to the metrics file
  std::vector<bool> ok;
  std::vector<int64_t> epochs;
  std::string failure;  // likewise
  int64_t steps = 0, tokens_seen = 0, position = 0;
  uint64_t fingerprint = 0;  // of weights, moments and optimizer_step
};

// Training runs in a directory of their own.
class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    write("text.txt", made_up_text(800));
    clear_interruption();
  }

  std::string path(const std::string& file) const { return (directory_ / file).string(); }
  void write(const std::string& file, std::string_view content) const {
    directory_.write(file, content);
  }

  // Options of a job of `steps` steps, each of 4 windows of 16 bytes, with checkpoints in "ckpt".
  RunConfig options(int64_t steps) const {
    RunConfig c;
    c.model_type = "llama_v2";
    c.max_steps = steps;
    c.epochs = 100;
    c.lr_decay_iters = 20;  // the same curve for runs of any length
    c.lr = 0.01;
    c.train_batch_size = c.val_batch_size = 4;
    c.max_context_width = 16;
    c.dataset = path("text.txt");
    c.tokenizer = "byte";
    c.cache_dir = path("cache");
    c.checkpoint_dir = {path("ckpt")};
    c.threads = 2;
    return c;
  }

  // What a run gets in place of the CPU.
  virtual Backend& device_of(cpu::CpuBackend& cpu) { return cpu; }

  RunTrace train(RunConfig config, const ModelConfig& model = tiny_model()) {
    std::filesystem::remove(path("metrics"));
    config.metrics_file = path("metrics");
    cpu::CpuBackend backend(static_cast<int>(config.threads.value_or(2)),
                            cpu::isa_from_name(config.cpu_isa));
    Device device;
    device.backend = &device_of(backend);
    device.pool = &backend.pool();
    device.description = "test";
    device.job_id = job_id_;
    device.attempt = attempt_;
    device.system_root = system_root_;
    RunTrace trace;
    TrainingRun run(config, model, device);
    testing::internal::CaptureStderr();
    try {
      trace.end = run.run();
    } catch (...) {
      log_ = testing::internal::GetCapturedStderr();
      read_metrics(trace);
      failed_ = trace;
      throw;
    }
    trace.log = testing::internal::GetCapturedStderr();
    read_metrics(trace);
    trace.steps = run.record().step;
    trace.tokens_seen = run.record().tokens_seen;
    trace.position = run.record().position;
    if (!run.session().allocated()) return trace;  // it ended before
    trace.fingerprint = fingerprint_of(run.session());
    return trace;
  }

  // The message of the UserError that ends the run; failed() is what it did before, log() what it
  // said.
  std::string failure(const RunConfig& config, const ModelConfig& model = tiny_model()) {
    return user_error([&] { train(config, model); });
  }
  // From here on the host of a run is the one whose /proc and cgroups are there.
  void set_system_root(const std::string& root) { system_root_ = root; }
  const RunTrace& failed() const { return failed_; }
  const std::string& log() const { return log_; }

  // As the runs that follow get them from an agent.
  void set_job(const std::string& id, int attempt) {
    job_id_ = id;
    attempt_ = attempt;
  }

  // Names in the checkpoint directory.
  std::set<std::string> checkpoints(const std::string& directory = "ckpt") const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / directory)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  void read_metrics(RunTrace& trace) const {
    if (!std::filesystem::exists(path("metrics"))) return;
    std::string text = read_file(path("metrics"));
    ASSERT_TRUE(text.empty() || text.back() == '\n');
    for (std::string_view line : split(text, '\n')) {
      if (line.empty()) continue;
      auto json = nlohmann::json::parse(line);
      if (json.contains("validation_loss")) {
        trace.validations.push_back(json["validation_loss"].dump());
        continue;
      }
      if (json.contains("failure")) {
        trace.failure = json["failure"];
        continue;
      }
      trace.losses.push_back(json.at("loss").dump());
      trace.norms.push_back(json.at("gradient_norm").dump());
      trace.rates.push_back(json.at("learning_rate").dump());
      trace.ok.push_back(json.at("ok").get<bool>());
      trace.epochs.push_back(json.at("epoch").get<int64_t>());
    }
  }

  ScratchDirectory directory_;
  RunTrace failed_;
  std::string log_, job_id_;
  int attempt_ = 0;
  std::filesystem::path system_root_ = "/";
};

}  // namespace tessera
