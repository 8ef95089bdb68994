#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_record_reader.h"
#include "remote/options.h"
#include "remote/remote_entry.h"

namespace tessera {

// Puts the next document into `document` and returns true, or returns false at the end.
using DocumentSource = std::function<bool(std::string& document)>;

// Puts the next part of a document into `text`, or says that there is none.
using TextSource = std::function<TextPart(std::string& text)>;

struct DocumentReaderOptions {
  // A broken line of JSON, or row of a table, is counted, warned about once and skipped instead of
  // being an error.
  bool skip_bad_lines = false;
  std::string text_field = "text";                 // JSON lines and tables: the key of the text
  bool text_is_wanted = false;                     // rows that have it are text, by detect_kind()
  std::shared_ptr<std::atomic<bool>> warned = {};  // of it, among several readers (RecordOptions)
  RecordKind kind = RecordKind::kText;
  int64_t vocab_size = 0;  // kIds: ids are below it; 0: any that is not negative
  int64_t longest_document = kMaxDocumentBytes;  // of plain text, by next()
  RemoteOptions remote = {};
};

// The reader of one file. Tables are recognised by their content (on a server by the name:
// .parquet, .arrow, .feather), JSON lines by a name with ".json"; ids and conversations are in no
// other text. Packed text is recognised by its first bytes (text_stream.h).
std::unique_ptr<RecordReader> open_records(const RemoteEntry& file,
                                           const DocumentReaderOptions& options);

// What files hold, by the first one that says: by its columns, or its first whole line. Text where
// none does. UserError as of reading it.
RecordKind detect_kind(std::span<const RemoteEntry> files, const DocumentReaderOptions& options);

// Bytes that reading the first of the files that is not empty takes beside a reader's buffers: what
// unpacks it, as its head says (less where all of the files are small), or a batch of a table and,
// of Parquet, the first pages. UserError as of reading it.
int64_t reading_bytes(std::span<const RemoteEntry> files, const DocumentReaderOptions& options);

// Reads the records of files one after the other, in the order of `files` (open_records(), which
// has the limits, the memory and the errors). UserError too where a file is missing.
class DocumentReader {
 public:
  explicit DocumentReader(std::vector<RemoteEntry> files, DocumentReaderOptions options = {});
  // Files of this machine. Every one is looked at here: a missing one is reported before any work
  // is done.
  explicit DocumentReader(const std::vector<std::filesystem::path>& files,
                          DocumentReaderOptions options = {});
  ~DocumentReader();
  DocumentReader(DocumentReader&&) noexcept;
  DocumentReader& operator=(DocumentReader&&) noexcept;

  // The next record; false after the last. `record` is overwritten.
  bool next(Record& record);
  // Of text: the next non-empty document.
  bool next(std::string& document);
  // Of text: the next part of a document, however long that is; `text` is overwritten. Not to be
  // mixed with next() inside a document.
  TextPart next_part(std::string& text);

  // Bytes of the files as they are stored (compressed ones are counted compressed): consumed so
  // far, and of all files together. Equal after the last document.
  int64_t bytes_read() const;
  int64_t bytes_total() const;
  // Lines and rows skipped so far because of skip_bad_lines.
  int64_t bad_lines() const;

  // Where the next document is, or the next part of this one; for a reader of the same files in the
  // same order. What it costs to go on from: text_stream.h.
  std::string position() const;
  // UserError where the position is damaged, or does not fit the files.
  void seek(std::string_view position);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
