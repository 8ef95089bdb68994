#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_record_reader.h"

namespace tessera {

// Puts the next document into `document` and returns true, or returns false at the end.
using DocumentSource = std::function<bool(std::string& document)>;

// Puts the next part of a document into `text`, or says that there is none.
using TextSource = std::function<TextPart(std::string& text)>;

struct DocumentReaderOptions {
  // JSON lines: a broken line is counted, warned about once and skipped instead of being an error.
  bool skip_bad_lines = false;
  std::string text_field = "text";  // JSON lines: the key of the text
};

// Reads the documents of text files one after the other, in the order of `files`.
//
// Packed files are recognised by their first bytes (text_stream.h). A file whose name contains
// ".json" holds JSON lines with a string of text, any other is plain text (text_record_reader.h,
// which also has the limits, the memory and the errors). UserError too where a file is missing.
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
