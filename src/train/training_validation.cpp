#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/log.h"
#include "train/baselines.h"
#include "train/token_parts.h"
#include "train/training_run.h"

namespace tessera {
namespace {

constexpr std::string_view kNothingLearned =
    "no token is learned: answers that --max_context_width cuts off are not (tessera data inspect)";

}  // namespace

void TrainingRun::evaluate_only() {
  if (!data_.validation_samples)
    throw UserError(
        "--eval_only: there is no validation text; give --validation_dataset or --test_dir");
  const bool any_token = validate(config_.validation_batches);
  require_all_read();
  if (!any_token && !stopping_) {
    throw UserError(cat("--eval_only: there is no loss: of the validation data ", kNothingLearned));
  }
  if (!stopping_ && !std::isfinite(last_validation_loss_)) {
    throw UserError(
        "--eval_only: the loss is not finite: the training of these weights diverged, or they "
        "are damaged (tessera checkpoint show CHECKPOINT '*' counts what is not finite)");
  }
}

bool TrainingRun::validation_due(bool epoch_ended) const {
  if (!data_.validation_samples) return false;
  int64_t freq = config_.validation_freq.value_or(0);
  return (freq > 0 && record_.step % freq == 0) || (epoch_ended && config_.run_validation);
}

bool TrainingRun::validate(int64_t limit_batches) {
  tell_doing("validating");
  const SampleSource& windows = *data_.validation_samples;
  const Parallelism& parallelism = session_->programs().parallelism;
  BatchReaderOptions options;
  options.rows = config_.val_batch_size;
  options.ranks = parallelism.data_ranks();
  options.rank = parallelism.data_rank(rank());
  options.end = windows.samples();
  options.shuffle = false;
  options.document_starts = config_.document_mask;
  const int64_t all = windows.samples(), rows = options.rows * options.ranks;
  if (validated_at_ < 0)
    TESSERA_INFO(cat("A validation reads ",
                     std::min(all, std::min(limit_batches, all / rows + 1) * rows), " of ", all,
                     " rows (--validation_batches)"));
  BatchReader reader(windows, options);
  Batch batch;
  double loss_sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < limit_batches; ++i) {
    bool more = true;
    const bool stops = !try_reading([&] { more = reader.next(batch); });
    if (!more) break;
    // All ranks hear with a batch that one of them stops: it takes part with any ids.
    if (stops) batch.inputs.assign(batch.inputs.size(), 0);
    if (stops) batch.targets = batch.inputs;
    EvaluationResult result = session_->evaluate(
        {batch.inputs, batch.targets, {}, batch.document_starts}, stops || interrupted());
    stopping_ = result.stop;
    if (stopping_) return false;
    loss_sum += result.loss_sum;
    tokens += result.tokens;
  }
  validated_at_ = record_.step;
  validated_whole_ = reader.done();
  // Of no token there is none: not a number.
  last_validation_loss_ = tokens > 0 ? loss_sum / static_cast<double>(tokens) : NAN;
  double perplexity = std::exp(last_validation_loss_);
  int64_t batch_number = std::max<int64_t>(0, record_.step - 1);
  if (tokens > 0) {
    TESSERA_INFO(cat("Batch ", batch_number, " Validation loss: ", last_validation_loss_));
    TESSERA_INFO(cat("Batch ", batch_number, " Validation perplexity: ", perplexity));
  } else if (rank() == 0 && !config_.eval_only) {
    TESSERA_WARN_ONCE(cat("There is no validation loss: of the validation data ", kNothingLearned));
  }
  int64_t samples = data_.training_samples ? data_.training_samples->samples() : 0;
  int64_t epoch_number = samples > 0 ? 1 + std::max<int64_t>(0, record_.position - 1) / samples
                         : reader_   ? 1 + reader_->epoch()
                                     : 1;
  const ValidationReport report{batch_number, epoch_number, record_.tokens_seen,
                                last_validation_loss_, perplexity};
  for (const auto& sink : sinks_) sink->validation(report);
  if (console_) console_->validation(report);
  tell_doing("training");
  return tokens > 0;
}

void TrainingRun::validate_after_step() {
  if (!stopping_) validate(config_.validation_batches);
  record_.validation_unfinished = stopping_;
  if (!stopping_) save_if_improved();
}

void TrainingRun::check_baselines() const {
  if (!config_.compare_baselines) return;
  const bool text = data_.parts.size() == 1 && data_.parts[0].cache && data_.validation_bytes > 0;
  if (!text || !data_.validation.cache)
    throw UserError(
        "--compare_baselines needs training text of one data set, joined to windows, and "
        "validation files: give --validation_dataset");
}

void TrainingRun::print_baselines() {
  if (validated_at_ != record_.step || !validated_whole_)
    validate(data_.validation_samples->samples());
  require_all_read();
  if (stopping_) return;
  double nats = last_validation_loss_ * static_cast<double>(data_.validation.tokens.count() - 1);
  double model_bits =
      nats / std::numbers::ln2 / static_cast<double>(std::max<int64_t>(1, data_.validation_bytes));
  DocumentReader reader(data_.validation_files,
                        reading_options(config_, RecordKind::kText, record_.model.vocab_size));
  Baselines baselines = measure_baselines(
      data_.parts[0].tokens, data_.validation.tokens, data_.tokenizer->vocab_size(),
      [&](std::string& d) { return reader.next_part(d) != TextPart::kNone; });
  TESSERA_INFO(cat("Bits per byte of ", data_.validation_bytes, " bytes of held-out text:"));
  for (auto [label, bits] : {std::pair{"unigram model", baselines.unigram_bits_per_byte},
                             {"bigram model", baselines.bigram_bits_per_byte},
                             {"gzip -9", baselines.gzip_bits_per_byte},
                             {"this model", model_bits}}) {
    TESSERA_INFO(
        format("  %-14s %.4f  %s", label, bits,
               std::string(static_cast<size_t>(std::clamp(bits * 12, 0.0, 80.0)), '#').c_str()));
  }
}

}  // namespace tessera
