#include "train/training_reader.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "train/token_parts.h"

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

bool try_reading(const std::function<void()>& read, std::string& error) {
  try {
    read();
    return true;
  } catch (const Interrupted&) {
  } catch (const UserError& refused) {
    error = refused.what();
  }
  return false;
}

TrainingReader::TrainingReader(const RunConfig& config, const Parallelism& parallelism,
                               const TrainingData& data, Control* control, int64_t position,
                               StreamState state)
    : config_(config), parallelism_(parallelism), data_(data), control_(control) {
  if (data.stream) {
    StreamReaderOptions options;
    options.rows = config.train_batch_size;
    options.ranks = parallelism.data_ranks();
    options.rank = parallelism.data_rank(rank());
    options.document_starts = config.document_mask;
    options.threads = static_cast<int>(std::clamp<int64_t>(config.data_num_workers, 1, 64));
    options.ahead = std::max<int64_t>(2, config.gradient_accumulation_steps + 1);
    state.position = position;
    auto stream = std::make_unique<StreamReader>(*data.stream, options, state);
    stream_ = stream.get();
    source_ = std::move(stream);
    agree_on_stream({});
    return;
  }
  BatchReaderOptions options;
  options.rows = config.train_batch_size;
  options.ranks = parallelism.data_ranks();
  options.rank = parallelism.data_rank(rank());
  options.end = config.epochs * data.training_samples->samples();
  options.position = position;
  options.seed = static_cast<uint64_t>(config.seed);
  options.document_starts = config.document_mask;
  options.prefetch = true;
  source_ = std::make_unique<BatchReader>(*data.training_samples, options);
}

std::string TrainingReader::to_text() const {
  if (!stream_)
    return cat(data_.training_samples->samples(), " windows of ", data_.training_samples->context(),
               " tokens,");
  size_t files = 0;
  uint64_t bytes = 0;
  for (const StreamSettings::Source& source : data_.stream->sources) {
    files += source.files.size();
    for (const RemoteEntry& file : source.files) bytes += file.size;
  }
  return cat("a stream of ", files, files == 1 ? " file (" : " files (",
             format_bytes(static_cast<int64_t>(bytes)), ") in ", data_.stream->lanes,
             " lanes, windows of ", data_.stream->context, " tokens, at most");
}

std::optional<int64_t> TrainingReader::batches_ready() const {
  return stream_ ? std::optional(stream_->queue_depth()) : std::nullopt;
}

TrainingReader::Fetched TrainingReader::fetch(std::vector<Batch>& batches, bool is_first_step) {
  batches.resize(static_cast<size_t>(config_.gradient_accumulation_steps));
  reading_seconds_ = 0;
  if (!stream_) return fetch_samples(batches);
  stream_->keep();
  const Fetched fetched = fetch_windows(batches, is_first_step);
  if (fetched == Fetched::kStopped) stream_->take_back();
  return fetched;
}

TrainingReader::BatchesRead TrainingReader::read(std::vector<Batch>& batches) {
  const double begin = monotonic_seconds();
  BatchesRead done;
  const auto read_all = [&] {
    for (; done.count < batches.size() && source_->next(batches[done.count]); ++done.count)
      done.samples += batches[done.count].samples;
    if (stream_ && done.samples == 0) check_interruption();
  };
  done.stops = !try_reading(read_all, error_);
  reading_seconds_ += monotonic_seconds() - begin;
  return done;
}

TrainingReader::Fetched TrainingReader::fetch_samples(std::vector<Batch>& batches) {
  const int64_t position = source_->position();
  const BatchesRead done = read(batches);
  samples_ = source_->position() - position;
  batches.resize(done.count);
  const bool stops =
      control_ ? control_->any("whether the data can be read", done.stops) : done.stops;
  return stops ? Fetched::kStopped : done.count > 0 ? Fetched::kBatches : Fetched::kEnded;
}

TrainingReader::Fetched TrainingReader::fetch_windows(std::vector<Batch>& batches,
                                                      bool is_first_step) {
  const int64_t passes = passes_;
  bool looked = false;
  for (;;) {
    const bool all_done = !agree_on_stream(read(batches));
    if (stopping_) return Fetched::kStopped;
    if (samples_ > 0) return Fetched::kBatches;
    if (is_first_step && !all_done && rank() == 0 && !std::exchange(looked, true)) {
      const std::string why = missing_answers_of_stream(data_, config_);
      if (!why.empty()) TESSERA_WARN(cat("No token of the stream was learned yet.", why));
    }
    // What is behind the first whole pass was in the middle of one when the step began.
    const bool nothing = !all_done && passes_ - passes >= 2;
    if (nothing || (all_done && is_first_step)) {
      std::vector<std::string> names;
      for (const DataSource& source : data_.sources) names.push_back(source.name);
      error_ = cat("data set '", join(names, "', '"), "' ");
      error_ += is_first_step ? cat("is empty.", missing_answers_of_stream(data_, config_))
                              : "has no more tokens to learn";
      return Fetched::kStopped;
    }
    if (all_done) {
      TESSERA_INFO(cat("The data has ended after ", config_.epochs,
                       config_.epochs == 1 ? " epoch" : " epochs"));
      return Fetched::kEnded;
    }
  }
}

// No rank knows of the lanes of others: how many windows there are, whether more may come. False
// where all lanes have ended.
bool TrainingReader::agree_on_stream(const BatchesRead& done) {
  const std::string here =
      cat(done.stops        ? "s"
          : stream_->done() ? "d"
                            : "r",
          stream_->epoch(), " ", stream_->passes(), " ", is_first_reader() ? done.samples : 0);
  std::vector<std::string> all{here};
  if (control_) all = control_->exchange("what is left of the stream", here);
  int64_t least = INT64_MAX, most = 0;
  samples_ = 0;
  passes_ = INT64_MAX;
  for (const std::string& rank_says : all) {
    const auto numbers = split(std::string_view(rank_says).substr(1), ' ');
    const auto number = [&](size_t i) { return std::stoll(std::string(numbers.at(i))); };
    stopping_ = stopping_ || rank_says[0] == 's';
    if (rank_says[0] == 'r') least = std::min<int64_t>(least, number(0));
    most = std::max<int64_t>(most, number(0));
    passes_ = std::min<int64_t>(passes_, number(1));
    samples_ += number(2);
  }
  const bool all_done = least == INT64_MAX;
  epoch_ = all_done ? most : least;
  return !all_done;
}

// Ranks of one tensor-parallel group read the same.
bool TrainingReader::is_first_reader() const {
  return parallelism_.mesh.index(rank(), parallelism_.tp.all) == 0;
}

uint64_t TrainingReader::hash_on_all_ranks(const std::vector<Batch>& batches) const {
  uint64_t sum = 0;
  if (is_first_reader())
    for (const Batch& batch : batches) sum += data_hash(batch);
  if (!control_) return sum;
  uint64_t all = 0;
  for (const std::string& text : control_->exchange("hash of the data", cat(sum)))
    all += std::stoull(text);
  return all;
}

StreamState TrainingReader::whole_state() const {
  if (!control_) return stream_->state();
  const auto all = control_->exchange(
      "places in the stream", is_first_reader() ? to_bytes(stream_->state()) : std::string());
  StreamState whole{stream_->position(), {}};
  if (rank() > 0) return whole;
  for (const std::string& bytes : all) {
    if (bytes.empty()) continue;
    whole.lanes.merge(stream_state_from_bytes(bytes, data_.stream->sources.size(), "lanes").lanes);
  }
  return whole;
}

void TrainingReader::watch_starvation(int64_t steps, double waited_seconds,
                                      double stepped_seconds) {
  // The first step waits for the first documents of all.
  if (!stream_ || steps == 0 || starvation_told_) return;
  waited_seconds_ += waited_seconds;
  stepped_seconds_ += waited_seconds + stepped_seconds;
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
