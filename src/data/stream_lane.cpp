#include "data/stream_lane.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr uint64_t kBufferStream = stream_of("data.buffer");
constexpr uint64_t kLaneCropStream = stream_of("data.crop");

bool is_learned(const TokenDocument& document, size_t i) {
  return document.learned.empty() || document.learned[i] != 0;
}

// Tokens [begin, begin + length) of a document, at place `at` of a row. They predict each other,
// the last one the next of the document if there is one.
void put(const TokenDocument& document, size_t begin, size_t length, size_t at,
         const SampleRow& row) {
  for (size_t i = 0; i < length; ++i) {
    const size_t next = begin + i + 1;
    row.inputs[at + i] = document.ids[begin + i];
    row.targets[at + i] = next < document.ids.size() && is_learned(document, next)
                              ? document.ids[next]
                              : kIgnoreIndex;
  }
  if (!row.document_starts.empty())
    std::ranges::fill(row.document_starts.subspan(at, length), static_cast<int32_t>(at));
}
}  // namespace

StreamLane::StreamLane(const StreamSettings& settings, int64_t lane, LaneState state)
    : settings_(settings), lane_(lane), state_(std::move(state)) {
  const size_t sources = settings.sources.size();
  state_.sources.resize(sources);
  for (size_t s = 0; s < sources; ++s)
    for (const auto& document : state_.sources[s].buffer) check_ids(*document);
  if (state_.document) check_ids(*state_.document);
  if (state_.last) check_ids({{*state_.last}, {}});
  // The state may be of a job of fewer epochs, or of more.
  if (sources == 1) {
    LaneState::Source& source = state_.sources[0];
    source.ended = source.epoch >= settings.epochs;
    state_.ended &= source.ended;
  }
  readers_.resize(sources);
  moved_.resize(sources, false);
  empty_parts_.resize(sources, 0);
  without_documents_.resize(sources);
  for (const LaneState::Source& source : state_.sources) {
    int64_t& tokens = buffered_.emplace_back(0);
    for (const auto& document : source.buffer) tokens += std::ssize(document->ids);
  }
  for (size_t s = 0; s < sources; ++s)
    files_.emplace_back(settings.sources[s].files.size(), settings.lanes,
                        hash_combine(settings.seed, s), settings.shuffle);
}

StreamLane::~StreamLane() = default;

// Of a state that was kept: ids of another vocabulary would be read behind the model's embedding.
void StreamLane::check_ids(const TokenDocument& document) const {
  for (const StreamSettings::Source& source : settings_.sources) {
    const int64_t words = source.reading.vocab_size;
    for (int32_t id : document.ids) {
      if (id < 0 || (words > 0 && id >= words))
        throw UserError(cat("a place in the data holds id ", id, ", ids are 0 to ", words - 1,
                            ": it is of another tokenizer, or damaged"));
    }
  }
}

int64_t StreamLane::next(const SampleRow& row) {
  const auto context = static_cast<size_t>(settings_.context);
  TESSERA_CHECK(row.inputs.size() == context && row.targets.size() == context);
  const size_t filled = settings_.packing == Packing::kConcatenate ? fill_joined(row)
                        : settings_.packing == Packing::kBestFit   ? fill_best_fit(row)
                                                                   : fill_row(row);
  std::ranges::fill(row.inputs.subspan(filled), settings_.filler);
  std::ranges::fill(row.targets.subspan(filled), kIgnoreIndex);
  if (!row.document_starts.empty())
    std::ranges::fill(row.document_starts.subspan(filled),
                      static_cast<int32_t>(filled == context ? 0 : filled));
  return settings_.context - std::ranges::count(row.targets, kIgnoreIndex);
}

size_t StreamLane::fill_joined(const SampleRow& row) {
  int32_t start = 0;
  size_t t = 0;
  if (!state_.last && !state_.ended) {
    if (auto first = next_token()) state_.last = first->id;
  }
  while (t < row.inputs.size() && state_.last) {
    row.inputs[t] = *state_.last;
    if (!row.document_starts.empty()) row.document_starts[t] = start;
    auto target = next_token();
    state_.last = target ? std::optional(target->id) : std::nullopt;
    row.targets[t] = target && target->learned ? target->id : kIgnoreIndex;
    ++t;
    if (target && target->begins_document) start = static_cast<int32_t>(t);
  }
  return t;
}

size_t StreamLane::fill_best_fit(const SampleRow& row) {
  const size_t context = row.inputs.size();
  size_t at = 0;
  while (at < context && (state_.document || next_document(at == 0 ? SIZE_MAX : context - at))) {
    const TokenDocument& document = *state_.document;
    const size_t length = std::min<size_t>(context - at, document.ids.size() - state_.next);
    put(document, state_.next, length, at, row);
    state_.next += length;
    at += length;
    if (state_.next == document.ids.size()) leave_document();
  }
  return at;
}

size_t StreamLane::fill_row(const SampleRow& row) {
  if (!state_.document && !next_document()) return 0;
  const TokenDocument& document = *state_.document;
  const size_t length = std::min(row.inputs.size(), document.ids.size());
  uint64_t given = 0;
  for (const LaneState::Source& source : state_.sources)
    given += static_cast<uint64_t>(source.tokens);
  const uint64_t key = hash_combine(settings_.seed, static_cast<uint64_t>(lane_));
  const bool cut = document.ids.size() > length + 1;  // one more is the last one's target
  const uint64_t begin =
      cut ? random_below(key, kLaneCropStream, given, document.ids.size() - length + 1) : 0;
  put(document, begin, length, 0, row);
  if (cut) {
    row.targets[length - 1] = kIgnoreIndex;  // what follows is left out
    TESSERA_WARN_ONCE(cat("there are rows longer than the context of ", length,
                          " tokens: of such a one so many from a random place are taken"));
  }
  leave_document();
  return length;
}

const LaneState& StreamLane::state() {
  for (size_t s = 0; s < readers_.size(); ++s) {
    if (!moved_[s]) continue;
    state_.sources[s].position = std::make_shared<const std::string>(readers_[s]->position());
    moved_[s] = false;
  }
  return state_;
}

std::optional<StreamLane::Token> StreamLane::next_token() {
  if (!state_.document && !next_document()) return std::nullopt;
  const TokenDocument& document = *state_.document;
  const size_t i = state_.next++;
  Token token{document.ids[i], is_learned(document, i), i == 0};
  if (state_.next == document.ids.size()) leave_document();
  return token;
}

void StreamLane::leave_document() {
  state_.document.reset();
  state_.next = 0;
}

// The one that has given the fewest tokens for its weight, the first of equal ones; nothing where
// all have ended.
std::optional<size_t> StreamLane::next_source() const {
  std::optional<size_t> chosen;
  double least = 0;
  for (size_t s = 0; s < state_.sources.size(); ++s) {
    if (state_.sources[s].ended) continue;
    const double share =
        static_cast<double>(state_.sources[s].tokens) / settings_.sources[s].weight;
    if (chosen && share >= least) continue;
    chosen = s;
    least = share;
  }
  return chosen;
}

// One that has at most `room` tokens. Whether there is one; the lane has ended where there is none
// of any length.
bool StreamLane::next_document(size_t room) {
  while (const std::optional<size_t> source = next_source()) {
    state_.document = room == SIZE_MAX ? draw(*source) : longest(*source, room);
    if (state_.document) {
      state_.sources[*source].tokens += std::ssize(state_.document->ids);
      return true;
    }
    if (room != SIZE_MAX) return false;
  }
  state_.ended = true;
  return false;
}

// A document of the buffer; null where the source has ended.
std::shared_ptr<const TokenDocument> StreamLane::draw(size_t source) {
  LaneState::Source& state = state_.sources[source];
  while (!state.ended) {
    fill_buffer(source);
    if (state.buffer.empty()) {
      state.ended = end_epoch(source);
      continue;
    }
    const uint64_t key =
        hash_combine(hash_combine(settings_.seed, source), static_cast<uint64_t>(lane_));
    return take(source, settings_.shuffle
                            ? random_below(key, kBufferStream, state.draws++, state.buffer.size())
                            : 0);
  }
  return nullptr;
}

// The longest of at most `room` tokens in the buffer, of equal ones the first; null if none fits.
std::shared_ptr<const TokenDocument> StreamLane::longest(size_t source, size_t room) {
  fill_buffer(source);
  const auto& buffer = state_.sources[source].buffer;
  auto best = buffer.end();
  for (auto i = buffer.begin(); i != buffer.end(); ++i) {
    const size_t length = (*i)->ids.size();
    if (length <= room && (best == buffer.end() || length > (*best)->ids.size())) best = i;
  }
  return best == buffer.end() ? nullptr : take(source, static_cast<size_t>(best - buffer.begin()));
}

std::shared_ptr<const TokenDocument> StreamLane::take(size_t source, size_t place) {
  auto& buffer = state_.sources[source].buffer;
  std::shared_ptr<const TokenDocument> document = std::move(buffer[place]);
  buffered_[source] -= std::ssize(document->ids);
  if (settings_.shuffle) {
    buffer[place] = std::move(buffer.back());
    buffer.pop_back();
  } else {
    buffer.erase(buffer.begin() + static_cast<std::ptrdiff_t>(place));
  }
  return document;
}

// Whether that was the last. An epoch is given whole before the next begins.
bool StreamLane::end_epoch(size_t source) {
  LaneState::Source& state = state_.sources[source];
  const auto files = std::ssize(settings_.sources[source].files);
  close_reader(source);
  ++state.epoch;
  state.part = 0;
  const bool nothing = state.documents == 0;
  state.documents = 0;
  state.read_tokens = 0;
  empty_parts_[source] = nothing ? empty_parts_[source] + files_[source].parts(lane_) : 0;
  // Other epochs may deal the lane other files. Of so many parts each file was one, but for a
  // chance of e^-16 where two of its parts may be the lane's.
  const bool always_same = files == 1 || !settings_.shuffle || settings_.epoch_windows > 0;
  const bool never = nothing && (always_same || empty_parts_[source] >= 32 * files);
  const bool alone = settings_.sources.size() == 1;
  if (never || (nothing && alone)) warn_of_nothing(source);
  return never || (alone && state.epoch >= settings_.epochs);
}

void StreamLane::warn_of_nothing(size_t source) const {
  TESSERA_WARN_ONCE(cat("data set '", settings_.sources[source].name,
                        "' has no document for some of the --data_lanes ", settings_.lanes, ": ",
                        settings_.sources.size() == 1 ? "their rows are empty"
                                                      : "it gives less than its share of the mix",
                        "; give --data_lanes N with no more than it has documents, or "
                        "--streaming off"));
}

void StreamLane::fill_buffer(size_t source) {
  LaneState::Source& state = state_.sources[source];
  const int64_t most = kMostBufferedTokens / settings_.lanes;
  while (state.buffer.empty() ||
         (std::ssize(state.buffer) < settings_.buffer && buffered_[source] < most)) {
    if (has_share(state)) return;
    auto document = read(source);
    if (!document) return;
    ++state.documents;
    state.read_tokens += std::ssize(document->ids);
    buffered_[source] += std::ssize(document->ids);
    state.buffer.push_back(std::move(document));
  }
}

// Whether what was read of this epoch makes as many windows as the lane may have.
bool StreamLane::has_share(const LaneState::Source& state) const {
  if (settings_.epoch_windows == 0) return false;
  const int64_t windows = (settings_.epoch_windows - lane_ + settings_.lanes - 1) / settings_.lanes;
  if (settings_.packing == Packing::kRows) return state.documents >= windows;
  return state.read_tokens >= windows * settings_.context;
}

void StreamLane::close_reader(size_t source) {
  readers_[source].reset();
  moved_[source] = false;
  state_.sources[source].position.reset();
  state_.sources[source].record = 0;
}

// The next document of this epoch that has tokens; null where there is none.
std::shared_ptr<const TokenDocument> StreamLane::read(size_t source) {
  LaneState::Source& state = state_.sources[source];
  const StreamSettings::Source& settings = settings_.sources[source];
  std::unique_ptr<RecordReader>& reader = readers_[source];
  const double start = monotonic_seconds();
  double encoding = 0;
  auto note_times = [&] {
    times_.encoding += encoding;
    times_.reading += monotonic_seconds() - start - encoding;
  };
  while (state.part < files_[source].parts(lane_)) {
    check_interruption();
    const int64_t order = settings_.epoch_windows > 0 ? 0 : state.epoch;
    const LanePart part = files_[source].part(lane_, order, state.part);
    const bool from_start = state.record == 0;
    const std::pair known{part.file, part.begin};
    if (from_start && without_documents_[source].contains(known)) {
      ++state.part;
      continue;
    }
    if (!reader) {
      DocumentReaderOptions reading = settings.reading;
      reading.longest_document = kMaxStreamDocumentBytes;
      reader = open_records(settings.files[part.file], reading);
      if (state.position) reader->seek(*state.position);
    }
    while (reader->next(record_)) {
      moved_[source] = true;
      std::shared_ptr<TokenDocument> document;
      if (part.holds(state.record++)) {
        document = std::make_shared<TokenDocument>();
        const double before = monotonic_seconds();
        settings.encode(record_, *document);
        encoding += monotonic_seconds() - before;
      }
      if (record_.bytes() > kKeptBytes) record_ = Record();
      if (!document || document->ids.empty()) continue;
      note_times();
      return document;
    }
    if (from_start) without_documents_[source].insert(known);
    close_reader(source);
    ++state.part;
  }
  note_times();
  return nullptr;
}

}  // namespace tessera
