// How a training run gets its batches.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/places.h"
#include "options/resume_comparison.h"
#include "train/token_parts.h"
#include "train/training_run.h"

namespace tessera {
namespace {

// Steps over which the share of waiting is taken, and the share that is told.
constexpr int64_t kSteadySteps = 20;
constexpr double kMuchWaiting = 0.1;
constexpr double kNoticedSeconds = 5;  // less than that nobody minds

// Windows without a token to learn are none of a stream's, which may so seem to be empty.
std::string missing_answers_of_stream(const TrainingData& data, const RunConfig& config) {
  std::string why;
  for (size_t i = 0; i < data.sources.size() && why.empty(); ++i)
    why = missing_answers(data.sources[i].files.training, data.stream->sources[i].reading.kind,
                          config);
  return why;
}

}  // namespace

void TrainingRun::open_reader() {
  const Parallelism& parallelism = session_->programs().parallelism;
  const int64_t ranks = parallelism.data_ranks();
  const int64_t samples_per_step =
      config_.train_batch_size * ranks * config_.gradient_accumulation_steps;
  first_step_ = record_.step;
  if (data_.stream) {
    StreamReaderOptions options;
    options.rows = config_.train_batch_size;
    options.ranks = ranks;
    options.rank = parallelism.data_rank(rank());
    options.document_starts = config_.document_mask;
    options.threads = static_cast<int>(std::clamp<int64_t>(config_.data_num_workers, 1, 64));
    options.ahead = std::max<int64_t>(2, config_.gradient_accumulation_steps + 1);
    stream_state_.position = record_.position;
    auto stream = std::make_unique<StreamReader>(*data_.stream, options, stream_state_);
    stream_state_.lanes.clear();
    stream_ = stream.get();
    reader_ = std::move(stream);
    agree_on_stream(0);
    total_steps_ = last_step();
    size_t files = 0;
    uint64_t bytes = 0;
    for (const StreamSettings::Source& source : data_.stream->sources) {
      files += source.files.size();
      for (const RemoteEntry& file : source.files) bytes += file.size;
    }
    TESSERA_INFO(cat("Training on a stream of ", files, files == 1 ? " file (" : " files (",
                     format_bytes(static_cast<int64_t>(bytes)), ") in ", data_.stream->lanes,
                     " lanes, windows of ", data_.stream->context, " tokens, at most ",
                     total_steps_ - first_step_, " steps of ", samples_per_step, " windows"));
    return;
  }
  const SampleSource& samples = *data_.training_samples;
  BatchReaderOptions options;
  options.rows = config_.train_batch_size;
  options.ranks = ranks;
  options.rank = parallelism.data_rank(rank());
  options.end = config_.epochs * samples.samples();
  options.position = record_.position;
  options.seed = static_cast<uint64_t>(config_.seed);
  options.document_starts = config_.document_mask;
  options.prefetch = true;
  reader_ = std::make_unique<BatchReader>(samples, options);
  total_steps_ = last_step();
  if (rank() == 0 && record_.position > options.end) {
    TESSERA_WARN(cat("The run goes on at window ", record_.position, ", but its data end at ",
                     options.end, " (--epochs ", config_.epochs,
                     "): there is nothing left to train on. Is it the same --dataset?"));
  }
  TESSERA_INFO(cat("Training on ", samples.samples(), " windows of ", samples.context(),
                   " tokens, ", total_steps_ - first_step_, " steps of ", samples_per_step,
                   " windows"));
}

int64_t TrainingRun::last_step() const {
  if (stream_) return std::max(record_.step, config_.max_steps);
  const int64_t samples = config_.train_batch_size * session_->programs().parallelism.data_ranks() *
                          config_.gradient_accumulation_steps;
  const int64_t end = config_.epochs * data_.training_samples->samples();
  const int64_t left = (std::max<int64_t>(0, end - record_.position) + samples - 1) / samples;
  return std::max(record_.step, std::min(config_.max_steps, record_.step + left));
}

int64_t TrainingRun::epoch() const { return stream_ ? stream_epoch_ : reader_->epoch(); }

bool TrainingRun::try_reading(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Interrupted&) {
  } catch (const UserError& error) {
    reading_error_ = error.what();
  }
  return false;
}

void TrainingRun::require_all_read() const {
  if (!stopping_) return;
  std::vector<std::string> all{reading_error_};
  if (device_.control) all = device_.control->exchange("errors of the data", reading_error_);
  const auto failed = std::ranges::find_if(all, [](const auto& error) { return !error.empty(); });
  if (failed == all.end()) return;
  if (std::ranges::count(all, *failed) == std::ssize(all)) throw UserError(*failed);
  throw UserError(cat("rank ", failed - all.begin(), ": ", *failed));
}

bool TrainingRun::fetch(std::vector<Batch>& batches) {
  batches.resize(static_cast<size_t>(config_.gradient_accumulation_steps));
  reading_seconds_ = 0;
  if (!stream_) return fetch_samples(batches);
  stream_->keep();
  const bool any = fetch_windows(batches);
  if (stopping_) stream_->take_back();
  return any;
}

TrainingRun::BatchesRead TrainingRun::read(std::vector<Batch>& batches) {
  const double begin = monotonic_seconds();
  BatchesRead done;
  const auto read_all = [&] {
    for (; done.count < batches.size() && reader_->next(batches[done.count]); ++done.count)
      done.samples += batches[done.count].samples;
    if (stream_ && done.samples == 0) check_interruption();
  };
  done.stops = !try_reading(read_all);
  reading_seconds_ += monotonic_seconds() - begin;
  return done;
}

bool TrainingRun::fetch_samples(std::vector<Batch>& batches) {
  const int64_t position = reader_->position();
  const BatchesRead done = read(batches);
  fetched_samples_ = reader_->position() - position;
  batches.resize(done.count);
  stopping_ = device_.control ? device_.control->any("whether the data can be read", done.stops)
                              : done.stops;
  return !stopping_ && done.count > 0;
}

bool TrainingRun::fetch_windows(std::vector<Batch>& batches) {
  const bool first = record_.step == 0;
  const int64_t passes = stream_passes_;
  bool looked = false;
  for (;;) {
    const BatchesRead done = read(batches);
    const bool all_done = !agree_on_stream(done.samples, done.stops);
    if (stopping_) return false;
    if (fetched_samples_ > 0) return true;
    if (first && !all_done && rank() == 0 && !std::exchange(looked, true)) {
      const std::string why = missing_answers_of_stream(data_, config_);
      if (!why.empty()) TESSERA_WARN(cat("No token of the stream was learned yet.", why));
    }
    // What is behind the first whole pass was in the middle of one when the step began.
    const bool nothing = !all_done && stream_passes_ - passes >= 2;
    if (nothing || (all_done && first)) {
      std::vector<std::string> names;
      for (const DataSource& source : data_.sources) names.push_back(source.name);
      reading_error_ = cat("data set '", join(names, "', '"), "' ");
      reading_error_ += first ? cat("is empty.", missing_answers_of_stream(data_, config_))
                              : "has no more tokens to learn";
      stopping_ = true;
      return false;
    }
    if (all_done) {
      TESSERA_INFO(cat("The data has ended after ", config_.epochs,
                       config_.epochs == 1 ? " epoch" : " epochs"));
      total_steps_ = record_.step;
      tell_total_steps();
      return false;
    }
  }
}

// No rank knows of the lanes of others: how many windows there are, whether more may come.
bool TrainingRun::agree_on_stream(int64_t samples, bool stops) {
  const std::string here =
      cat(stops             ? "s"
          : stream_->done() ? "d"
                            : "r",
          stream_->epoch(), " ", stream_->passes(), " ", is_first_reader() ? samples : 0);
  std::vector<std::string> all{here};
  if (device_.control) all = device_.control->exchange("what is left of the stream", here);
  int64_t least = INT64_MAX, most = 0;
  fetched_samples_ = 0;
  stream_passes_ = INT64_MAX;
  for (const std::string& rank_says : all) {
    const auto numbers = split(std::string_view(rank_says).substr(1), ' ');
    const auto number = [&](size_t i) { return std::stoll(std::string(numbers.at(i))); };
    stopping_ = stopping_ || rank_says[0] == 's';
    if (rank_says[0] == 'r') least = std::min<int64_t>(least, number(0));
    most = std::max<int64_t>(most, number(0));
    stream_passes_ = std::min<int64_t>(stream_passes_, number(1));
    fetched_samples_ += number(2);
  }
  const bool all_done = least == INT64_MAX;
  stream_epoch_ = all_done ? most : least;
  return !all_done;
}

// Ranks of one tensor-parallel group read the same.
bool TrainingRun::is_first_reader() const {
  const Parallelism& parallelism = session_->programs().parallelism;
  return parallelism.mesh.index(rank(), parallelism.tp.all) == 0;
}

uint64_t TrainingRun::hash_on_all_ranks(const std::vector<Batch>& batches) const {
  uint64_t sum = 0;
  if (is_first_reader())
    for (const Batch& batch : batches) sum += data_hash(batch);
  if (!device_.control) return sum;
  uint64_t all = 0;
  for (const std::string& text : device_.control->exchange("hash of the data", cat(sum)))
    all += std::stoull(text);
  return all;
}

// The lanes of all ranks, on rank 0.
StreamState TrainingRun::whole_stream_state() const {
  if (!device_.control) return stream_->state();
  const auto all = device_.control->exchange(
      "places in the stream", is_first_reader() ? to_bytes(stream_->state()) : std::string());
  StreamState whole{stream_->position(), {}};
  if (rank() > 0) return whole;
  for (const std::string& bytes : all) {
    if (bytes.empty()) continue;
    whole.lanes.merge(stream_state_from_bytes(bytes, data_.stream->sources.size(), "lanes").lanes);
  }
  return whole;
}

void TrainingRun::load_stream_state(const std::filesystem::path& checkpoint,
                                    const RunRecord& saved) {
  if (!data_.stream || config_.eval_only) return;
  const std::filesystem::path file = checkpoint / kDataFolder / kStreamName;
  const bool known = std::ranges::any_of(data_.known_stream_hashes(), [&](uint64_t hash) {
    return saved.training_text == TextRecord{data_.training_tokens(), hash};
  });
  if (known && is_stored(file)) {
    stream_state_ = stream_state_from_bytes(read_content(file), data_.stream->sources.size(),
                                            cat("'", file.string(), "'"));
    return;
  }
  if (rank() > 0) return;
  const std::string changed = changed_text(saved, record_);
  TESSERA_WARN(cat("checkpoint '", checkpoint.string(),
                   "' does not say where it was in this stream",
                   changed.empty() ? "" : cat(" (", changed, ")"), ": the data begins anew"));
}

// Once, when the pace has settled: what the step waits for.
void TrainingRun::watch_starvation(const StepReport& report) {
  const int64_t steps = report.batch - first_step_;
  // The first step waits for the first documents of all.
  if (!stream_ || steps == 0 || starvation_told_) return;
  waited_seconds_ += report.data_seconds;
  stepped_seconds_ += report.step_seconds + report.data_seconds;
  if (steps < kSteadySteps || waited_seconds_ < kMuchWaiting * stepped_seconds_ ||
      waited_seconds_ < kNoticedSeconds)
    return;
  starvation_told_ = true;
  const LaneTimes times = stream_->times();
  const bool reads = times.reading > times.encoding;
  TESSERA_WARN(cat("the steps wait for data ",
                   format("%.0f", 100 * waited_seconds_ / stepped_seconds_),
                   "% of the time: its threads spend ", format("%.0f", times.reading),
                   " s reading, ", format("%.0f", times.encoding), " s tokenizing; ",
                   reads ? "faster storage or network helps, or more --data_num_workers"
                         : "more --data_num_workers help, or `tessera data prepare` beforehand"));
}

}  // namespace tessera
