#include "data/stream_lane.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/random.h"
#include "base/text.h"
#include "data/position_bytes.h"

namespace tessera {
namespace {

constexpr char kKind = 'l';
constexpr uint64_t kStream = stream_of("data.buffer");
constexpr uint64_t kLargest = uint64_t{1} << 62;
constexpr uint64_t kMostEpochs = uint64_t{1} << 31;
constexpr size_t kMostPositionBytes = size_t{64} << 10;
constexpr size_t kMostDocumentBytes = size_t{kMaxDocumentBytes} * 4;

void add(PositionWriter& writer, const TokenDocument& document) {
  writer.add({reinterpret_cast<const char*>(document.ids.data()), document.ids.size() * 4});
  writer.add({reinterpret_cast<const char*>(document.learned.data()), document.learned.size()});
}

std::shared_ptr<const TokenDocument> read_document(PositionReader& reader) {
  auto document = std::make_shared<TokenDocument>();
  const std::string_view ids = reader.bytes(kMostDocumentBytes);
  const std::string_view learned = reader.bytes(kMostDocumentBytes);
  if (ids.size() % 4 != 0 || (!learned.empty() && learned.size() != ids.size() / 4))
    reader.refuse("a document is broken");
  document->ids.resize(ids.size() / 4);
  if (!ids.empty()) std::memcpy(document->ids.data(), ids.data(), ids.size());
  document->learned.assign(learned.begin(), learned.end());
  return document;
}

}  // namespace

std::string to_bytes(const LaneState& state) {
  PositionWriter writer(kKind);
  writer.add(uint64_t{state.sources.size()});
  for (const LaneState::Source& source : state.sources) {
    for (int64_t value :
         {source.epoch, source.part, source.record, source.documents,
          static_cast<int64_t>(source.draws), source.tokens, static_cast<int64_t>(source.ended)})
      writer.add(static_cast<uint64_t>(value));
    writer.add(std::string_view(source.position ? *source.position : ""));
    writer.add(uint64_t{source.buffer.size()});
    for (const auto& document : source.buffer) add(writer, *document);
  }
  add(writer, state.document ? *state.document : TokenDocument{});
  writer.add(uint64_t{state.next});
  writer.add(state.last ? static_cast<uint64_t>(*state.last) + 1 : 0);
  writer.add(uint64_t{state.ended});
  return writer.finish();
}

LaneState lane_state_from_bytes(std::string_view bytes, size_t sources, const std::string& name) {
  PositionReader reader(bytes, kKind, name);
  auto value = [&] { return static_cast<int64_t>(reader.value(kLargest)); };
  LaneState state;
  if (reader.value(kLargest) != sources) reader.refuse("the data has another number of sources");
  state.sources.resize(sources);
  for (LaneState::Source& source : state.sources) {
    source.epoch = static_cast<int64_t>(reader.value(kMostEpochs));
    source.part = value();
    source.record = value();
    source.documents = value();
    source.draws = reader.value(kLargest);
    source.tokens = value();
    source.ended = reader.value(1) == 1;
    if (std::string_view position = reader.bytes(kMostPositionBytes); !position.empty())
      source.position = std::make_shared<const std::string>(position);
    const uint64_t documents = reader.value(bytes.size());
    for (uint64_t i = 0; i < documents; ++i) source.buffer.push_back(read_document(reader));
  }
  if (auto document = read_document(reader); !document->ids.empty())
    state.document = std::move(document);
  state.next = reader.value(state.document ? state.document->ids.size() : 0);
  if (uint64_t last = reader.value(uint64_t{1} << 31); last > 0)
    state.last = static_cast<int32_t>(last - 1);
  state.ended = reader.value(1) == 1;
  reader.end();
  return state;
}

StreamLane::StreamLane(const StreamSettings& settings, int64_t lane, LaneState state)
    : settings_(settings), lane_(lane), state_(std::move(state)) {
  const size_t sources = settings.sources.size();
  state_.sources.resize(sources);
  for (size_t s = 0; s < sources; ++s)
    for (const auto& document : state_.sources[s].buffer) check_ids(*document);
  if (state_.document) check_ids(*state_.document);
  if (state_.last) check_ids({{*state_.last}, {}});
  readers_.resize(sources);
  moved_.resize(sources, false);
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
  const bool tells = !row.document_starts.empty();
  int64_t tokens = 0;
  int32_t start = 0;
  size_t t = 0;
  if (!state_.last && !state_.ended) {
    if (auto first = next_token()) state_.last = first->id;
  }
  while (t < context && state_.last) {
    row.inputs[t] = *state_.last;
    if (tells) row.document_starts[t] = start;
    auto target = next_token();
    state_.last = target ? std::optional(target->id) : std::nullopt;
    const bool learned = target && target->learned;
    row.targets[t] = learned ? target->id : kIgnoreIndex;
    tokens += learned;
    ++t;
    if (target && target->begins_document) start = static_cast<int32_t>(t);
  }
  std::ranges::fill(row.inputs.subspan(t), settings_.filler);
  std::ranges::fill(row.targets.subspan(t), kIgnoreIndex);
  if (tells)
    std::ranges::fill(row.document_starts.subspan(t), static_cast<int32_t>(t == context ? 0 : t));
  return tokens;
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
  if (!state_.document && !next_document()) {
    state_.ended = true;
    return std::nullopt;
  }
  const TokenDocument& document = *state_.document;
  const size_t i = state_.next++;
  Token token{document.ids[i], document.learned.empty() || document.learned[i] != 0, i == 0};
  if (state_.next == document.ids.size()) {
    state_.document.reset();
    state_.next = 0;
  }
  return token;
}

// Of the source that has given the fewest tokens for its weight; the first of equal ones.
bool StreamLane::next_document() {
  for (;;) {
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
    if (!chosen) return false;
    state_.document = draw(*chosen);
    if (!state_.document) continue;
    state_.sources[*chosen].tokens += std::ssize(state_.document->ids);
    return true;
  }
}

// A document of the buffer; null where the source has ended.
std::shared_ptr<const TokenDocument> StreamLane::draw(size_t source) {
  LaneState::Source& state = state_.sources[source];
  while (!state.ended) {
    fill_buffer(source);
    if (state.buffer.empty()) {
      state.ended = end_epoch(state);
      continue;
    }
    const uint64_t key =
        hash_combine(hash_combine(settings_.seed, source), static_cast<uint64_t>(lane_));
    const size_t place =
        settings_.shuffle ? random_below(key, kStream, state.draws++, state.buffer.size()) : 0;
    std::shared_ptr<const TokenDocument> document = std::move(state.buffer[place]);
    buffered_[source] -= std::ssize(document->ids);
    if (settings_.shuffle) {
      state.buffer[place] = std::move(state.buffer.back());
      state.buffer.pop_back();
    } else {
      state.buffer.erase(state.buffer.begin());
    }
    return document;
  }
  return nullptr;
}

// Whether that was the last. An epoch is given whole before the next begins.
bool StreamLane::end_epoch(LaneState::Source& state) const {
  ++state.epoch;
  state.part = 0;
  const bool nothing = state.documents == 0;  // and so for ever
  state.documents = 0;
  return nothing || (settings_.sources.size() == 1 && state.epoch >= settings_.epochs);
}

void StreamLane::fill_buffer(size_t source) {
  LaneState::Source& state = state_.sources[source];
  const int64_t most = kMostBufferedTokens / settings_.lanes;
  while (state.buffer.empty() ||
         (std::ssize(state.buffer) < settings_.buffer && buffered_[source] < most)) {
    auto document = read(source);
    if (!document) return;
    ++state.documents;
    buffered_[source] += std::ssize(document->ids);
    state.buffer.push_back(std::move(document));
  }
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
    const LanePart part = files_[source].part(lane_, state.epoch, state.part);
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
    reader.reset();
    moved_[source] = false;
    state.position.reset();
    state.record = 0;
    ++state.part;
  }
  note_times();
  return nullptr;
}

}  // namespace tessera
