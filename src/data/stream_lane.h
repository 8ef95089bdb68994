#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/document_reader.h"
#include "data/lane_files.h"
#include "data/lane_state.h"
#include "data/sample_source.h"

namespace tessera {

// Checkpoints have what is buffered.
constexpr int64_t kMostBufferedTokens = int64_t{16} << 20;
// A lane reads and encodes a document in one piece.
constexpr int64_t kMaxStreamDocumentBytes = kMaxJsonLineBytes;

// Makes tokens of a record, by many threads at once. `out` comes empty.
using EncodeRecord = std::function<void(const Record& record, TokenDocument& out)>;

// What a stream of unread documents is made of. It is cut into lanes, whose number does not depend
// on the ranks: sample k of the job comes from lane k % lanes and is its window number k / lanes. A
// lane reads its own files (lane_files.h), mixes their documents, and makes windows of `context`
// tokens of them, as `packing` says:
//   kConcatenate  joined; what is left of a document goes on in the next window
//   kBestFit      whole documents: one, then the longest in the buffer that fits, until none does.
//                 Of a longer one full windows and a rest. Targets do not leave a document.
//   kRows         one document each; of a longer one `context` tokens from a random place, the
//                 others are left out
// So what a lane gives depends on this description alone.
struct StreamSettings {
  // Data sets that are mixed by weight: the next document is that of the source which has given the
  // fewest tokens for its weight, so the shares are exact but for one document.
  struct Source {
    std::vector<RemoteEntry> files;
    double weight = 1;
    DocumentReaderOptions reading;
    EncodeRecord encode;
    std::string name = {};  // for messages
  };
  std::vector<Source> sources;
  int64_t lanes = 96;
  int64_t context = 0;  // T
  // Documents of a source of a lane among which the next one is drawn; fewer where they are so long
  // that those of all lanes would have more than kMostBufferedTokens.
  int64_t buffer = 1;
  int64_t epochs = 1;   // of a single source; of several each begins again for ever
  bool shuffle = true;  // the order of files, and within the buffer
  Packing packing = Packing::kConcatenate;
  // 0: all. Else an epoch of a source is what makes so many windows of its first documents; it is
  // the same in every epoch. A lane has its share of them and ends it with a whole document.
  int64_t epoch_windows = 0;
  uint64_t seed = 0;
  int32_t filler = 0;
};

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

  // Fills the row with the next window. Returns how many targets it has: of joined documents
  // `context`, fewer only in the last one. 0 and nothing but filler behind the last.
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
  // Each returns how much of the row it has filled.
  size_t fill_joined(const SampleRow& row);
  size_t fill_best_fit(const SampleRow& row);
  size_t fill_row(const SampleRow& row);
  std::optional<Token> next_token();
  void leave_document();
  std::optional<size_t> next_source() const;
  bool next_document(size_t room = SIZE_MAX);
  std::shared_ptr<const TokenDocument> draw(size_t source);
  std::shared_ptr<const TokenDocument> longest(size_t source, size_t room);
  std::shared_ptr<const TokenDocument> take(size_t source, size_t place);
  std::shared_ptr<const TokenDocument> read(size_t source);
  void fill_buffer(size_t source);
  bool has_share(const LaneState::Source& state) const;
  void close_reader(size_t source);
  bool end_epoch(size_t source);
  void warn_of_nothing(size_t source) const;

  const StreamSettings& settings_;
  int64_t lane_;
  LaneState state_;
  std::vector<std::unique_ptr<RecordReader>> readers_;  // of each source's part, once it is opened
  std::vector<bool> moved_;                             // since its position was noted
  std::vector<int64_t> buffered_;                       // tokens in each source's buffer
  std::vector<LaneFiles> files_;
  // Of each source: parts in a row that held nothing for the lane, and those of them that are
  // known, by file and LanePart::begin, which need not be read again.
  std::vector<int64_t> empty_parts_;
  std::vector<std::set<std::pair<size_t, int64_t>>> without_documents_;
  Record record_;
  LaneTimes times_;
};

}  // namespace tessera
