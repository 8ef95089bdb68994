#include "data/token_encoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/ignore_index.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {
namespace {

// The unit of encoding: whole small documents, or a part of a large one.
struct Segment {
  struct Piece {
    size_t begin, size;
    bool begins_document, ends_document;
  };
  std::string text;
  std::vector<Piece> pieces;
  std::vector<Record> records;  // instead of text
  size_t bytes = 0;
  EncodedSegment encoded;
};

constexpr size_t kSegmentBytes = size_t{64} << 10;
constexpr size_t kBatchSegments = 128;  // one batch is encoded while the next is read
constexpr size_t kBatchBytes = 2 * kBatchSegments * kSegmentBytes;  // or fewer, of long records

class SegmentReader {
 public:
  explicit SegmentReader(const EncodingJob& job) : job_(job) {}

  // The next batch; empty at the end of the data.
  void read(std::vector<Segment>& batch) {
    batch.clear();
    for (size_t bytes = 0; batch.size() < kBatchSegments && bytes < kBatchBytes;) {
      check_interruption();
      Segment segment;
      ends_group_ = false;
      if (job_.records) {
        take_records(segment);
        if (segment.records.empty()) return;
      } else {
        while (segment.text.size() < kSegmentBytes && !ends_group_ && (inside_ || next_document()))
          take(segment);
        if (segment.pieces.empty()) return;
        segment.bytes = segment.text.size();
      }
      bytes += segment.bytes;
      if (job_.position && !inside_) segment.encoded.position = job_.position();
      batch.push_back(std::move(segment));
    }
  }

 private:
  void take_records(Segment& segment) {
    while (segment.bytes < kSegmentBytes && !ends_group_ && !ended_) {
      Record record;
      ended_ = !job_.records(record);
      if (ended_) return;
      count_document();
      segment.bytes += record.bytes() + 1;
      segment.records.push_back(std::move(record));
    }
  }

  void count_document() { ends_group_ = job_.group > 0 && ++documents_ % job_.group == 0; }

  bool next_document() {
    text_.clear();
    position_ = 0;
    TextPart part = ended_ ? TextPart::kNone : job_.documents(text_);
    ended_ = part == TextPart::kNone;
    complete_ = part == TextPart::kLast;
    begins_ = true;
    return inside_ = !ended_;
  }

  // Moves the next piece of the document into the segment.
  void take(Segment& segment) {
    size_t end = end_of_piece();
    TESSERA_CHECK(end >= position_ && end <= text_.size());
    inside_ = !complete_ || end < text_.size();
    if (!inside_) count_document();
    segment.pieces.push_back(
        {segment.text.size(), end - position_, std::exchange(begins_, false), !inside_});
    if (segment.text.empty() && position_ == 0 && !inside_)
      segment.text = std::move(text_);
    else
      segment.text.append(text_, position_, end - position_);
    position_ = end;
  }

  // Where the next piece ends: at a place to cut, or with the document.
  size_t end_of_piece() {
    for (;;) {
      if (job_.cut && text_.size() - position_ > kSegmentBytes) {
        size_t end = job_.cut(text_, position_ + kSegmentBytes);
        if (end < text_.size() || complete_) return end;
      } else if (complete_) {
        return text_.size();
      }
      // Twice as much, so that looking for a place to cut takes time in proportion to the text.
      text_.erase(0, std::exchange(position_, 0));
      size_t wanted = std::max(2 * text_.size(), 2 * kSegmentBytes);
      while (!complete_ && text_.size() < wanted) read_on();
    }
  }

  void read_on() {
    TextPart part = job_.documents(part_);
    TESSERA_CHECK(part != TextPart::kNone, "a document without an end");
    complete_ = part == TextPart::kLast;
    if (text_.size() + part_.size() > job_.longest_piece) {
      throw UserError(cat("data set ", job_.name, ": a document of more than ",
                          format_bytes(static_cast<int64_t>(job_.longest_piece)),
                          " that this tokenizer cannot take in parts: separate documents by lines "
                          "'<|endoftext|>'"));
    }
    text_ += part_;
  }

  const EncodingJob& job_;
  std::string text_, part_;  // what was read of the document
  size_t position_ = 0;      // in text_: what is before it has been taken
  bool complete_ = false;    // text_ goes to the end of the document
  bool begins_ = false;      // nothing of the document has been taken
  bool inside_ = false;      // not all of it has been taken
  bool ended_ = false;
  int64_t documents_ = 0;    // that have ended
  bool ends_group_ = false;  // with the last of them
};

void encode_text(const EncodingJob& job, Segment& segment) {
  EncodedSegment& out = segment.encoded;
  std::vector<int32_t> ids;
  for (const Segment::Piece& piece : segment.pieces) {
    if (piece.begins_document) {
      out.ids.insert(out.ids.end(), job.document_prefix.begin(), job.document_prefix.end());
    }
    ids.clear();
    job.encode(std::string_view(segment.text).substr(piece.begin, piece.size), ids);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    if (piece.ends_document && job.end_of_text >= 0) out.ids.push_back(job.end_of_text);
    out.parts.push_back({out.ids.size(), static_cast<int64_t>(piece.size), piece.ends_document});
  }
}

void encode_record(const EncodingJob& job, Record& record, EncodedSegment& out) {
  const auto text_bytes = static_cast<int64_t>(record.ids.empty() ? record.bytes() : size_t{0});
  if (job.encode_record) job.encode_record(record);
  TESSERA_CHECK(record.labels.empty() || record.labels.size() == record.ids.size());
  const auto limit = static_cast<uint32_t>(std::min<int64_t>(job.vocab_size, int64_t{1} << 31));
  for (int32_t id : record.ids) {
    if (static_cast<uint32_t>(id) < limit) continue;
    throw UserError(cat("data set ", job.name, " has a row with the id ", id,
                        ", the vocabulary has ", job.vocab_size,
                        " entries: give the tokenizer that the rows were made with"));
  }
  const size_t before = out.ids.size();
  out.ids.insert(out.ids.end(), record.ids.begin(), record.ids.end());
  const bool all = std::ranges::find(record.labels, kIgnoreIndex) == record.labels.end();
  if (!all && out.learned.empty()) out.learned.assign(before, 1);
  if (!all || !out.learned.empty()) {
    out.learned.resize(out.ids.size(), 1);
    for (size_t i = 0; i < record.labels.size(); ++i)
      out.learned[before + i] = record.labels[i] != kIgnoreIndex;
  }
  out.parts.push_back({out.ids.size(), text_bytes, true});
}

void encode(const EncodingJob& job, Segment& segment) {
  check_interruption();
  if (!job.records) return encode_text(job, segment);
  for (Record& record : segment.records) encode_record(job, record, segment.encoded);
}

}  // namespace

struct TokenEncoder::State {
  State(const EncodingJob& j, ThreadPool& p) : job(j), pool(p), reader(j) {}

  const EncodingJob& job;
  ThreadPool& pool;
  SegmentReader reader;
  std::vector<Segment> batch, ahead;
  bool begun = false;
};

EncodingJob encoding_of(RecordKind kind, const Tokenizer* tokenizer, const RecordEncoder* encoder,
                        int64_t vocab_size) {
  EncodingJob job;
  job.vocab_size = vocab_size;
  job.end_of_text = -1;
  if (kind == RecordKind::kChat) {
    job.encode_record = [encoder](Record& record) {
      std::vector<int32_t> ids;
      std::vector<uint8_t> learned;
      encoder->encode(record, ids, learned);
      record.labels.resize(ids.size());
      for (size_t i = 0; i < ids.size(); ++i)
        record.labels[i] = learned[i] != 0 ? ids[i] : kIgnoreIndex;
      record.ids = std::move(ids);
    };
  } else if (kind == RecordKind::kText) {
    const std::span<const int32_t> prefix = tokenizer->document_prefix();
    job.document_prefix.assign(prefix.begin(), prefix.end());
    job.end_of_text = tokenizer->end_of_text();
    job.encode = [tokenizer](std::string_view text, std::vector<int32_t>& ids) {
      tokenizer->encode(text, ids);
    };
    job.cut = [tokenizer](std::string_view text, size_t from) {
      return tokenizer->cut(text, from);
    };
  }
  return job;
}

TokenEncoder::TokenEncoder(const EncodingJob& job, ThreadPool& pool)
    : state_(std::make_unique<State>(job, pool)) {
  TESSERA_CHECK(job.vocab_size > 0 && (job.records || job.documents));
  TESSERA_CHECK(job.end_of_text < job.vocab_size);
}

TokenEncoder::~TokenEncoder() = default;

bool TokenEncoder::next(std::vector<EncodedSegment>& out) {
  State& state = *state_;
  out.clear();
  if (!std::exchange(state.begun, true)) state.reader.read(state.ahead);
  if (state.ahead.empty()) return false;
  std::swap(state.batch, state.ahead);
  // Reading is one more tile: it goes on beside the encoding where there are threads for both.
  state.pool.run(static_cast<int64_t>(state.batch.size()) + 1, [&](int64_t tile, int) {
    if (tile == 0) {
      state.reader.read(state.ahead);
    } else {
      encode(state.job, state.batch[static_cast<size_t>(tile - 1)]);
    }
  });
  for (Segment& segment : state.batch) out.push_back(std::move(segment.encoded));
  return true;
}

}  // namespace tessera
