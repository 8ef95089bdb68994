#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

// Puts the next document into `document` and returns true, or returns false at the end.
using DocumentSource = std::function<bool(std::string& document)>;

// What a source of parts of documents has put into `text`: a part behind which the document goes
// on, its last part (which may be empty), or nothing, at the end of all.
enum class TextPart { kMore, kLast, kNone };
using TextSource = std::function<TextPart(std::string& text)>;

struct DocumentReaderOptions {
  // JSON lines: a broken line is counted, warned about once and skipped instead of being an error.
  bool skip_bad_lines = false;
};

// A longer line of a JSON-lines file, or a longer document, is an error: what is read stays bounded
// for any input, a small gzip file that unpacks to terabytes included.
constexpr int64_t kMaxJsonLineBytes = int64_t{64} << 20;
constexpr int64_t kMaxDocumentBytes = int64_t{2} << 30;
// Plain text comes in parts of about so much.
constexpr int64_t kPartBytes = int64_t{1} << 20;

// Reads the documents of text files one after the other, in the order of `files`.
//
// gzip is recognised by its first two bytes (not by name); a file may hold many members, and zeros
// after the last. A file whose name contains ".json" holds JSON lines: one object a line, the text
// in its string `text`; CRLF, a byte order mark and blank lines are fine. Any other file is plain
// text, in which a line that is exactly `<|endoftext|>` separates documents; without one the file
// is one document. Plain text is passed on byte by byte: invalid UTF-8 is data. Empty documents are
// left out.
//
// Memory: one document, or by next_part() one part of it, and two buffers of 256 KiB; for JSON also
// up to 14 times the longest line, which is what the parser sets aside.
//
// UserError, always naming the file: it is missing or unreadable; gzip data is truncated or
// damaged; plain text holds a zero byte ("looks binary", with the offset in the unpacked text); a
// JSON line is broken or has no string `text` (with the line number); a line or document exceeds
// its limit.
class DocumentReader {
 public:
  // Every file is looked at here: a missing one is reported before any work is done.
  explicit DocumentReader(std::vector<std::filesystem::path> files,
                          DocumentReaderOptions options = {});
  ~DocumentReader();
  DocumentReader(DocumentReader&&) noexcept;
  DocumentReader& operator=(DocumentReader&&) noexcept;

  // The next non-empty document; false after the last. `document` is overwritten.
  bool next(std::string& document);
  // The next part of a document, however long that is; `text` is overwritten. Not to be mixed with
  // next() inside a document.
  TextPart next_part(std::string& text);

  // Bytes of the files as they lie on disk (compressed ones are counted compressed): consumed so
  // far, and of all files together. Equal after the last document.
  int64_t bytes_read() const;
  int64_t bytes_total() const;
  // Lines skipped so far because of skip_bad_lines.
  int64_t bad_lines() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
