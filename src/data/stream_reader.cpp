#include "data/stream_reader.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/text.h"
#include "data/position_bytes.h"

namespace tessera {
namespace {

constexpr char kStreamKind = 's';

}  // namespace

std::string to_bytes(const StreamState& state) {
  PositionWriter writer(kStreamKind);
  writer.add(static_cast<uint64_t>(state.position));
  writer.add(uint64_t{state.lanes.size()});
  for (const auto& [lane, lane_state] : state.lanes) {
    writer.add(static_cast<uint64_t>(lane));
    writer.add(std::string_view(to_bytes(lane_state)));
  }
  return writer.finish();
}

StreamState stream_state_from_bytes(std::string_view bytes, size_t sources,
                                    const std::string& name) {
  PositionReader reader(bytes, kStreamKind, name);
  StreamState state;
  state.position = static_cast<int64_t>(reader.value(kLargestValue));
  const uint64_t lanes = reader.value(bytes.size());
  for (uint64_t i = 0; i < lanes; ++i) {
    const auto lane = static_cast<int64_t>(reader.value(kLargestValue));
    state.lanes[lane] =
        lane_state_from_bytes(reader.bytes(bytes.size()), sources, cat(name, ", lane ", lane));
  }
  reader.end();
  return state;
}

uint64_t stream_fingerprint(const StreamSettings& settings, uint64_t tokenizer_fingerprint,
                            bool skips_bad_lines) {
  uint64_t hash = hash_combine(tokenizer_fingerprint, settings.seed);
  for (int64_t value :
       {settings.lanes, settings.buffer, int64_t{settings.shuffle}, std::ssize(settings.sources)})
    hash = hash_combine(hash, static_cast<uint64_t>(value));
  if (settings.packing != Packing::kConcatenate)
    hash = hash_combine(hash, static_cast<uint64_t>(settings.packing));
  if (settings.epoch_windows > 0)
    hash = hash_combine(hash, static_cast<uint64_t>(settings.epoch_windows));
  for (const StreamSettings::Source& source : settings.sources) {
    hash = hash_combine(hash, std::bit_cast<uint64_t>(source.weight));
    hash = hash_combine(hash, static_cast<uint64_t>(source.reading.kind));
    hash = hash_combine(hash, uint64_t{skips_bad_lines});
    hash = hash_combine(hash, hash_text(source.reading.text_field));
    // Not where they are, or since when: the same files may have been copied.
    for (const RemoteEntry& file : source.files)
      hash = hash_combine(hash_combine(hash, hash_text(file.path)), file.size);
  }
  return hash;
}

StreamReader::StreamReader(const StreamSettings& settings, const StreamReaderOptions& options,
                           const StreamState& state)
    : settings_(settings), options_(options) {
  TESSERA_CHECK(options.rows > 0 && options.rank >= 0 && options.rank < options.ranks &&
                    options.threads > 0 && options.ahead > 0,
                cat(options.rows, " rows, rank ", options.rank, " of ", options.ranks));
  state_.position = kept_.position = state.position;
  const int64_t common = std::gcd(options.ranks, settings.lanes);
  thread_lanes_.resize(static_cast<size_t>(options.threads));
  // The samples of rank r are those that are r modulo R: they come from the lanes that are r modulo
  // the greatest common divisor of R and the number of lanes.
  size_t nth = 0;
  for (int64_t lane = options.rank % common; lane < settings.lanes; lane += common) {
    const auto known = state.lanes.find(lane);
    auto& object = lanes_[lane];
    object = std::make_unique<StreamLane>(settings, lane,
                                          known == state.lanes.end() ? LaneState{} : known->second);
    state_.lanes[lane] = object->state();
    first_rank_[lane] = lane % common;
    thread_lanes_[nth++ % thread_lanes_.size()].push_back(lane);
  }
  std::erase_if(thread_lanes_, [](const auto& lanes) { return lanes.empty(); });
  for (int64_t i = 0; i < options.ahead; ++i) {
    ahead_.push_back(std::make_unique<Ahead>());
    prepare(*ahead_.back(), state_.position + i * options.rows * options.ranks);
  }
  for (size_t thread = 0; thread < thread_lanes_.size(); ++thread)
    threads_.emplace_back([this, thread] { work(thread); });
}

StreamReader::~StreamReader() {
  ends_ = true;
  {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

int64_t StreamReader::first_row(int64_t position) const {
  const int64_t ranks = options_.ranks;
  return position + (options_.rank - position % ranks + ranks) % ranks;
}

void StreamReader::prepare(Ahead& ahead, int64_t position) const {
  const auto size = static_cast<size_t>(options_.rows * settings_.context);
  ahead.position = position;
  ahead.lanes.clear();
  ahead.samples = 0;
  ahead.tokens = 0;
  ahead.left = thread_lanes_.size();
  Batch& batch = ahead.batch;
  batch.first_sample = first_row(position);
  batch.sample_stride = options_.ranks;
  batch.rows = options_.rows;
  batch.inputs.resize(size);
  batch.targets.resize(size);
  batch.document_starts.resize(options_.document_starts ? size : 0);
}

// A thread makes its part of one batch after the other, as far as they were asked for.
void StreamReader::work(size_t thread) {
  InterruptedBy ended(ends_);
  int64_t next = state_.position;  // set before the threads start
  std::unique_lock lock(mutex_);
  for (;;) {
    Ahead* ahead = nullptr;
    changed_.wait(lock, [&] {
      for (const auto& candidate : ahead_)
        if (candidate->position == next) ahead = candidate.get();
      return ahead || ends_ || failure_;
    });
    if (ends_ || failure_) return;
    lock.unlock();
    try {
      fill(*ahead, thread);
    } catch (...) {
      lock.lock();
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    lock.lock();
    if (--ahead->left == 0) changed_.notify_all();
    next += options_.rows * options_.ranks;
  }
}

// The samples of the thread's lanes, those of other ranks too where they share a lane.
void StreamReader::fill(Ahead& ahead, size_t thread) {
  const auto context = static_cast<size_t>(settings_.context);
  std::vector<int32_t> others(context * 2);
  const int64_t end = ahead.position + options_.rows * options_.ranks;
  int64_t samples = 0, tokens = 0;
  LaneTimes times;
  std::vector<std::pair<int64_t, LaneState>> behind;
  for (int64_t number : thread_lanes_[thread]) {
    StreamLane& lane = *lanes_.at(number);
    const int64_t lanes = settings_.lanes;
    int64_t sample = ahead.position + (number - ahead.position % lanes + lanes) % lanes;
    if (sample >= end) continue;
    const LaneTimes before = lane.times();
    for (; sample < end; sample += lanes) {
      if (!takes(sample)) {
        const std::span<int32_t> left_out(others);
        lane.next({left_out.first(context), left_out.last(context), {}});
        continue;
      }
      Batch& batch = ahead.batch;
      const auto row = static_cast<size_t>((sample - batch.first_sample) / options_.ranks);
      auto part = [&](std::vector<int32_t>& whole) {
        return whole.empty() ? std::span<int32_t>()
                             : std::span(whole).subspan(row * context, context);
      };
      const int64_t targets =
          lane.next({part(batch.inputs), part(batch.targets), part(batch.document_starts)});
      samples += targets > 0;
      tokens += targets;
    }
    behind.emplace_back(number, lane.state());
    times.reading += lane.times().reading - before.reading;
    times.encoding += lane.times().encoding - before.encoding;
  }
  std::lock_guard lock(mutex_);
  for (auto& [number, state] : behind) ahead.lanes[number] = std::move(state);
  ahead.samples += samples;
  ahead.tokens += tokens;
  times_.reading += times.reading;
  times_.encoding += times.encoding;
}

bool StreamReader::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  depth_ = std::ranges::count_if(ahead_, [](const auto& ahead) { return ahead->left == 0; });
  while (!changed_.wait_for(lock, kInterruptionTick,
                            [&] { return ahead_.front()->left == 0 || failure_; }))
    check_interruption();
  if (ahead_.front()->left != 0) std::rethrow_exception(failure_);
  std::unique_ptr<Ahead> ready = std::move(ahead_.front());
  ahead_.pop_front();
  std::swap(batch, ready->batch);
  batch.samples = ready->samples;
  batch.tokens = ready->tokens;
  for (auto& [number, state] : ready->lanes) {
    LaneState& lane = state_.lanes[number];
    kept_.lanes.try_emplace(number, std::move(lane));
    lane = std::move(state);
  }
  const int64_t step = options_.rows * options_.ranks;
  state_.position += step;
  prepare(*ready, ahead_.empty() ? state_.position : ahead_.back()->position + step);
  ahead_.push_back(std::move(ready));
  changed_.notify_all();
  return true;
}

void StreamReader::keep() { kept_ = {state_.position, {}}; }

void StreamReader::take_back() {
  state_.position = kept_.position;
  for (auto& [number, state] : kept_.lanes) state_.lanes[number] = std::move(state);
  kept_.lanes.clear();
}

int64_t StreamReader::passes() const {
  int64_t least = INT64_MAX;
  for (const auto& [number, state] : state_.lanes)
    for (const LaneState::Source& source : state.sources)
      if (!state.ended && !source.ended) least = std::min(least, source.epoch);
  return least;
}

int64_t StreamReader::epoch() const {
  // A lane without a document has ended with its first.
  int64_t least = INT64_MAX, most = 0;
  for (const auto& [number, state] : state_.lanes) {
    if (!state.ended) least = std::min(least, state.epoch());
    most = std::max(most, state.epoch());
  }
  return least == INT64_MAX ? most : least;
}

bool StreamReader::done() const {
  return std::ranges::all_of(state_.lanes, [](const auto& lane) { return lane.second.ended; });
}

StreamState StreamReader::state() const {
  StreamState mine;
  mine.position = state_.position;
  for (const auto& [number, state] : state_.lanes)
    if (first_rank_.at(number) == options_.rank) mine.lanes[number] = state;
  return mine;
}

LaneTimes StreamReader::times() const {
  std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace tessera
