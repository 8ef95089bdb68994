#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/document_reader.h"
#include "data/lane_files.h"
#include "data/sample_source.h"

namespace tessera {

// Checkpoints have what is buffered.
constexpr int64_t kMostBufferedTokens = int64_t{16} << 20;
// A lane reads and encodes a document in one piece.
constexpr int64_t kMaxStreamDocumentBytes = kMaxJsonLineBytes;

// A document as tokens, and which of them are learned: empty where all are.
struct TokenDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // as many as ids, 0 or 1
};

// Makes tokens of a record, by many threads at once. `out` comes empty.
using EncodeRecord = std::function<void(const Record& record, TokenDocument& out)>;

// What a stream of unread documents is made of. It is cut into lanes, whose number does not depend
// on the ranks: sample k of the job comes from lane k % lanes and is its window number k / lanes. A
// lane reads its own files (lane_files.h), mixes their documents, and joins them to windows of
// `context` tokens; what is left of a document goes on in the next window. So what a lane gives
// depends on this description alone.
struct StreamSettings {
  // Data sets that are mixed by weight: the next document is that of the source which has given the
  // fewest tokens for its weight, so the shares are exact but for one document.
  struct Source {
    std::vector<RemoteEntry> files;
    double weight = 1;
    DocumentReaderOptions reading;
    EncodeRecord encode;
  };
  std::vector<Source> sources;
  int64_t lanes = 96;
  int64_t context = 0;  // T
  // Documents of a source of a lane among which the next one is drawn; fewer where they are so long
  // that those of all lanes would have more than kMostBufferedTokens.
  int64_t buffer = 1;
  int64_t epochs = 1;   // of a single source; of several each begins again for ever
  bool shuffle = true;  // the order of files, and within the buffer
  uint64_t seed = 0;
  int32_t filler = 0;
};

// Where a lane is: the files, what is buffered, what is left of a document. Copies share what they
// hold, which never changes.
struct LaneState {
  struct Source {
    int64_t epoch = 0, part = 0;                  // LaneFiles::part of the next record
    int64_t record = 0;                           // of that file
    std::shared_ptr<const std::string> position;  // of its reader; null: at the beginning
    int64_t documents = 0;                        // of this epoch so far
    uint64_t draws = 0;                           // from the buffer
    int64_t tokens = 0;                           // given so far
    bool ended = false;
    std::vector<std::shared_ptr<const TokenDocument>> buffer;
  };
  std::vector<Source> sources;
  std::shared_ptr<const TokenDocument> document;  // given in part
  uint64_t next = 0;                              // its next token
  std::optional<int32_t>
      last;  // the last target of the window before: the next window's first input
  bool ended = false;

  int64_t epoch() const { return sources.empty() ? 0 : sources[0].epoch; }
};

// Bytes to keep, and back. UserError, naming `name`, where they are damaged, or not of so many
// sources.
std::string to_bytes(const LaneState& state);
LaneState lane_state_from_bytes(std::string_view bytes, size_t sources, const std::string& name);

// Seconds that lanes spent.
struct LaneTimes {
  double reading = 0, encoding = 0;
};

// One lane. For one thread at a time. Errors are those of the readers and of `encode`; plain text
// of more than kMaxStreamDocumentBytes in one document is one. In memory are a reader (a file, what
// unpacks it: of zstd and xz up to 128 MiB if they were packed so; of tables a batch), the buffer,
// and while it reads the record.
class StreamLane {
 public:
  // `settings` must live longer. From the beginning, or from a state. UserError where that has ids
  // that the vocabulary lacks.
  StreamLane(const StreamSettings& settings, int64_t lane, LaneState state = {});
  ~StreamLane();

  // Fills the row with the next window. Returns how many targets it has: `context`, fewer only in
  // the last one, 0 and nothing but filler behind that.
  int64_t next(const SampleRow& row);
  // Where the lane is. Taking it costs up to 33 KiB of copying where a file was read since.
  const LaneState& state();
  const LaneTimes& times() const { return times_; }

 private:
  struct Token {
    int32_t id;
    bool learned, begins_document;
  };
  void check_ids(const TokenDocument& document) const;
  std::optional<Token> next_token();
  bool next_document();
  std::shared_ptr<const TokenDocument> draw(size_t source);
  std::shared_ptr<const TokenDocument> read(size_t source);
  void fill_buffer(size_t source);
  bool end_epoch(LaneState::Source& state) const;

  const StreamSettings& settings_;
  int64_t lane_;
  LaneState state_;
  std::vector<std::unique_ptr<RecordReader>> readers_;  // of each source's part, once it is opened
  std::vector<bool> moved_;                             // since its position was noted
  std::vector<int64_t> buffered_;                       // tokens in each source's buffer
  std::vector<LaneFiles> files_;
  Record record_;
  LaneTimes times_;
};

}  // namespace tessera
