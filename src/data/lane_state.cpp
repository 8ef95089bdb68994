#include "data/lane_state.h"

#include <cstring>
#include <utility>

#include "data/json_record.h"
#include "data/position_bytes.h"

namespace tessera {
namespace {

constexpr char kLaneKind = 'r';
constexpr char kLaneKindBefore = 'l';  // has no read_tokens
constexpr uint64_t kMostEpochs = uint64_t{1} << 31;
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
  PositionWriter writer(kLaneKind);
  writer.add(uint64_t{state.sources.size()});
  for (const LaneState::Source& source : state.sources) {
    for (int64_t value :
         {source.epoch, source.part, source.record, source.documents, source.read_tokens,
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
  const bool counts_read = !is_of_kind(bytes, kLaneKindBefore);
  PositionReader reader(bytes, counts_read ? kLaneKind : kLaneKindBefore, name);
  auto value = [&] { return static_cast<int64_t>(reader.value(kLargestValue)); };
  LaneState state;
  if (reader.value(kLargestValue) != sources)
    reader.refuse("the data has another number of sources");
  state.sources.resize(sources);
  for (LaneState::Source& source : state.sources) {
    source.epoch = static_cast<int64_t>(reader.value(kMostEpochs));
    source.part = value();
    source.record = value();
    source.documents = value();
    if (counts_read) source.read_tokens = value();
    source.draws = reader.value(kLargestValue);
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

}  // namespace tessera
