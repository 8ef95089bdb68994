#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "data/json_record.h"
#include "data/record_reader.h"

namespace tessera {

// What a source of parts of documents has put into `text`: a part behind which the document goes
// on, its last part (which may be empty), or nothing, at the end of all.
enum class TextPart { kMore, kLast, kNone };

// Plain text comes in parts of about so much.
constexpr int64_t kPartBytes = int64_t{1} << 20;

// Reads the records of one text, packed or not (text_stream.h).
//
// JSON lines: one object a line; CRLF, a byte order mark and blank lines are fine. Plain text: a
// line that is exactly `<|endoftext|>` separates documents; without one the text is one document.
// It is passed on byte by byte: invalid UTF-8 is data. Records without anything in them are left
// out.
//
// Memory: one record, or by next_part() one part of it, and two buffers of 256 KiB beside what
// unpacks; for JSON also up to 14 times the line, which is what the parser sets aside. Of a line of
// more than kKeptBytes nothing of that stays.
//
// A position is exact: the next record, or inside a document the next part, with the number of its
// line. What it costs to go on from: text_stream.h.
//
// UserError, always naming the source: those of the text stream; plain text holds a zero byte
// ("looks binary", with the offset in the unpacked text); a JSON line is broken (with the line
// number); a line or document exceeds its limit.
class TextRecordReader final : public RecordReader {
 public:
  // Without a source, until one is opened.
  explicit TextRecordReader(RecordOptions options = {});
  TextRecordReader(std::shared_ptr<const ByteSource> source, RecordForm form,
                   RecordOptions options = {});
  ~TextRecordReader() override;

  // Goes over to the beginning of another source. bad_records() goes on counting.
  void open(std::shared_ptr<const ByteSource> source, RecordForm form);

  bool next(Record& record) override;
  // Of plain text and JSON lines of text: the next part of a document, however long that is; `text`
  // is overwritten. Not to be mixed with next() inside a document.
  TextPart next_part(std::string& text);
  // The same for one document in one piece.
  bool next_text(std::string& text);

  std::string position() const override;
  void seek(std::string_view position) override;
  int64_t bytes_read() const override;
  int64_t bytes_total() const override;
  int64_t bad_records() const override;

 private:
  friend std::optional<RecordForm> detect_json_form(std::shared_ptr<const ByteSource> source,
                                                    bool skip_bad_lines,
                                                    std::string_view wanted_text);
  struct State;
  std::unique_ptr<State> state_;
};

// Whether a path is that of JSON lines: the file's name contains ".json" or ".ndjson", or that of a
// directory ends in ".json", ".jsonl" or ".ndjson" (x.json/part-0), in whatever case.
bool named_as_json_lines(std::string_view path);

// Whether the first line that is not blank is a whole JSON object with a key of some form of rows,
// whatever the name. UserError as of reading it.
bool begins_with_json_record(std::shared_ptr<const ByteSource> source, std::string_view text_field);

// The form of a source of JSON lines by the first of its lines that is neither blank nor broken;
// nullopt if there is none among the first thousand. UserError as of reading it: a line that is too
// long is an error unless broken ones are skipped. `wanted_text`: a key with which a line is text
// whatever else it holds.
std::optional<RecordForm> detect_json_form(std::shared_ptr<const ByteSource> source,
                                           bool skip_bad_lines = false,
                                           std::string_view wanted_text = "");

}  // namespace tessera
