#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "data/record_encoder.h"
#include "data/record_reader.h"

namespace tessera {

// Puts the next record that holds something into `record`; false at the end.
using RecordSource = std::function<bool(Record& record)>;

// What becomes tokens, and how. The documents are text in parts, or records: one of the two.
struct EncodingJob {
  std::string name;        // of the data set, for messages
  int64_t vocab_size = 0;  // ids are below it
  // Of text: what stands before every document, and what follows it; -1: nothing does.
  std::vector<int32_t> document_prefix;
  int32_t end_of_text = 0;
  TextSource documents;  // called by one thread at a time
  // Puts the ids of `text` into `ids`, which comes empty. Called by many threads at once.
  std::function<void(std::string_view text, std::vector<int32_t>& ids)> encode;
  // Where a long document may be cut so that several threads work on it: the first position at or
  // after `from` at which encoding the two sides one by one gives the same ids, or text.size().
  // Without it every document is encoded in one piece. Of the text behind that position it looks at
  // one character at most: documents are read in parts.
  std::function<size_t(std::string_view text, size_t from)> cut;
  size_t longest_piece = size_t{256} << 20;  // bytes of a document that are encoded in one piece

  // Instead of text: each record is a document, its ids as they are, learned after its labels.
  RecordSource records;  // called by one thread at a time
  // Makes `ids` and `labels` of a record that has none, or checks those it has. Called by many
  // threads at once.
  std::function<void(Record& record)> encode_record;

  // Where the source is, asked between documents only: a place to go on from. May be missing.
  std::function<std::string()> position;
  // Behind every so-manieth document a segment ends, counted from the first; 0: nowhere in
  // particular.
  int64_t group = 0;
};

// How records of a kind become tokens: text by the tokenizer alone, conversations by `encoder`, ids
// as they are. Where the kind does not need them both may be null; else they must live longer. The
// caller adds the name and the source, and may leave out end_of_text.
EncodingJob encoding_of(RecordKind kind, const Tokenizer* tokenizer, const RecordEncoder* encoder,
                        int64_t vocab_size);

// The tokens of some documents, or of a part of one.
struct EncodedSegment {
  struct Part {
    size_t end = 0;  // its tokens, if any, end here in `ids`; they begin where the part before ends
    int64_t text_bytes = 0;  // of the document's text, 0 where it was ids
    bool ends_document = false;
  };
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // for each id 1, or 0 where it is no target; empty: all 1
  std::vector<Part> parts;       // in order
  std::string position;  // of the source behind it, if it ends with a document and there is one
};

// Reads documents and encodes them with all threads of a pool; what comes out, and how it is cut
// into segments, depends on the documents only. A segment that begins with a document is cut as if
// that were the first. In memory: 16 MiB of text with its ids and, of the document being read, the
// part up to the next place to cut.
class TokenEncoder {
 public:
  // Both must live longer.
  TokenEncoder(const EncodingJob& job, ThreadPool& pool);
  ~TokenEncoder();
  TokenEncoder(const TokenEncoder&) = delete;
  TokenEncoder& operator=(const TokenEncoder&) = delete;

  // The next segments in order; false after the last. UserError: more than `longest_piece` of a
  // document cannot be cut, a record has an id that the vocabulary lacks, or what the source
  // reports. Interrupted when that is requested.
  bool next(std::vector<EncodedSegment>& batch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
