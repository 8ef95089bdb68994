#include "data/text_record_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/position_bytes.h"
#include "data/text_stream.h"

namespace tessera {
namespace {

constexpr char kTextRecordKind = 'r';
constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr std::string_view kSeparator = "<|endoftext|>";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

struct TextRecordReader::State {
  explicit State(RecordOptions chosen) : options(std::move(chosen)), parser(options) {}

  const RecordOptions options;
  JsonRecordParser parser;
  std::shared_ptr<const ByteSource> source;
  RecordForm form = RecordForm::kPlainText;
  std::optional<TextStream> stream;
  std::string chunk = std::string(kChunkBytes, '\0');
  size_t begin = 0, end = 0;                          // what is left in `chunk`
  int64_t line_number = 0;                            // of the last JSON line read
  bool inside_line = false, inside_document = false;  // of plain text, between two parts
  int64_t bad_records = 0;
  std::string line;
  bool too_long = false;  // `line` was, and is empty
  Record record;          // of next_part()

  bool json() const { return form != RecordForm::kPlainText; }
  std::string name() const { return cat("'", source->name(), "'"); }
  void start(std::string_view position);
  bool fill();
  enum class Line { kWhole, kPart, kTooLong, kNone };
  Line append_line(std::string& out, int64_t limit, const char* advice, int64_t part);
  void pass_over_line();
  TextPart next_plain(std::string& text, int64_t part);
  bool next_line();
  bool next_json(Record& into);
  TextPart next_text(std::string& text, int64_t part);
  void report_bad_line(const std::string& problem);
};

void TextRecordReader::State::start(std::string_view position) {
  stream.emplace(source, position);
  begin = end = 0;
  line_number = 0;
  inside_line = inside_document = false;
}

bool TextRecordReader::State::fill() {
  begin = 0;
  const uint64_t before = stream->offset();
  end = stream->read(chunk.data(), chunk.size());
  if (!json()) {
    if (const void* zero = std::memchr(chunk.data(), '\0', end)) {
      throw UserError(
          cat(name(), " looks binary: there is a zero byte at offset ",
              before + static_cast<uint64_t>(static_cast<const char*>(zero) - chunk.data()),
              "; give plain text or JSON lines, packed or not by gzip, zstd or xz"));
    }
  }
  return end > 0;
}

// Appends the next line with its end, or of one that is longer than a separator as much as makes
// `out` a part; kNone when the text has no more. Of JSON, where broken lines are skipped, one that
// is too long is passed over.
TextRecordReader::State::Line TextRecordReader::State::append_line(std::string& out, int64_t limit,
                                                                   const char* advice,
                                                                   int64_t part) {
  const size_t start = out.size();
  for (;;) {
    if (begin == end && !fill()) return out.size() > start ? Line::kWhole : Line::kNone;
    if (static_cast<int64_t>(out.size()) >= part && out.size() - start > kSeparator.size() + 2)
      return Line::kPart;
    const char* from = chunk.data() + begin;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end - begin));
    size_t n = newline ? static_cast<size_t>(newline - from) + 1 : end - begin;
    if (static_cast<int64_t>(out.size() + n) > limit) {
      if (json() && options.skip_bad_lines) {
        pass_over_line();
        out = std::string();
        return Line::kTooLong;
      }
      throw UserError(cat(name(), json() ? cat(", line ", line_number + 1) : std::string(),
                          ": longer than ", format_bytes(limit), "; ", advice));
    }
    out.append(from, n);
    begin += n;
    if (newline) return Line::kWhole;
  }
}

void TextRecordReader::State::pass_over_line() {
  for (; begin < end || fill(); begin = end) {
    const char* from = chunk.data() + begin;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end - begin));
    if (!newline) continue;
    begin += static_cast<size_t>(newline - from) + 1;
    return;
  }
}

TextPart TextRecordReader::State::next_plain(std::string& text, int64_t part) {
  for (;;) {
    if (static_cast<int64_t>(text.size()) >= part) {
      inside_document = true;
      return TextPart::kMore;
    }
    const size_t start = text.size();
    const bool whole = !inside_line;
    const bool lowered = options.longest_document < kMaxDocumentBytes;
    Line read = append_line(text, options.longest_document,
                            lowered ? "separate its documents by lines '<|endoftext|>', or read "
                                      "it whole beforehand (--streaming off)"
                                    : "separate its documents by lines '<|endoftext|>'",
                            part);
    inside_line = read == Line::kPart;
    bool separator = whole && read == Line::kWhole &&
                     without_line_end(std::string_view(text).substr(start)) == kSeparator;
    if (separator) text.resize(start);
    if (!separator && read != Line::kNone) continue;
    if (!text.empty() || std::exchange(inside_document, false)) {
      inside_document = false;
      return TextPart::kLast;
    }
    if (read == Line::kNone) return TextPart::kNone;
  }
}

// Puts the next line that is not blank into `line`; false when there is none.
bool TextRecordReader::State::next_line() {
  do {
    line.clear();
    const Line read =
        append_line(line, kMaxJsonLineBytes, "JSON lines hold one record each", INT64_MAX);
    if (read == Line::kNone) return false;
    ++line_number;
    too_long = read == Line::kTooLong;
    if (too_long) return true;
    if (line_number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  } while (trim(line).empty());
  return true;
}

bool TextRecordReader::State::next_json(Record& into) {
  while (next_line()) {
    into.clear();
    const std::string problem = too_long ? cat("longer than ", format_bytes(kMaxJsonLineBytes))
                                         : parser.parse(line, form, into);
    if (line.size() > kKeptBytes) line = std::string();
    if (!problem.empty()) {
      report_bad_line(problem);
    } else if (!into.empty()) {
      return true;
    }
  }
  into.clear();
  return false;
}

TextPart TextRecordReader::State::next_text(std::string& text, int64_t part) {
  text.clear();
  TESSERA_CHECK(stream && (form == RecordForm::kPlainText || form == RecordForm::kJsonText));
  if (!json()) return next_plain(text, part);
  if (!next_json(record)) return TextPart::kNone;
  std::swap(text, record.text);
  return TextPart::kLast;
}

void TextRecordReader::State::report_bad_line(const std::string& problem) {
  std::string message = cat(name(), ", line ", line_number, ": ", problem);
  if (!options.skip_bad_lines) {
    throw UserError(cat(message, "; ", parser.expectation(form),
                        " (--on_bad_line=skip leaves such lines out)"));
  }
  const bool first = bad_records++ == 0;
  if (first && !(options.warned && options.warned->exchange(true)))
    TESSERA_WARN(cat("skipping broken lines, the first: ", message));
}

TextRecordReader::TextRecordReader(RecordOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

TextRecordReader::TextRecordReader(std::shared_ptr<const ByteSource> source, RecordForm form,
                                   RecordOptions options)
    : TextRecordReader(std::move(options)) {
  open(std::move(source), form);
}

TextRecordReader::~TextRecordReader() = default;

void TextRecordReader::open(std::shared_ptr<const ByteSource> source, RecordForm form) {
  state_->source = std::move(source);
  state_->form = form;
  state_->start({});
}

bool TextRecordReader::next(Record& record) {
  if (state_->json()) return state_->next_json(record);
  record.clear();
  return state_->next_text(record.text, INT64_MAX) != TextPart::kNone;
}

TextPart TextRecordReader::next_part(std::string& text) {
  return state_->next_text(text, kPartBytes);
}

bool TextRecordReader::next_text(std::string& text) {
  return state_->next_text(text, INT64_MAX) != TextPart::kNone;
}

std::string TextRecordReader::position() const {
  PositionWriter writer(kTextRecordKind);
  writer.add(static_cast<uint64_t>(state_->form));
  writer.add(static_cast<uint64_t>(state_->line_number));
  writer.add(uint64_t{state_->inside_line});
  writer.add(uint64_t{state_->inside_document});
  writer.add(std::string_view(state_->stream->position(state_->end - state_->begin)));
  return writer.finish();
}

void TextRecordReader::seek(std::string_view position) {
  State& state = *state_;
  const std::string name = state.source->name();
  PositionReader reader(position, kTextRecordKind, name);
  if (reader.value(static_cast<uint64_t>(RecordForm::kJsonChat)) !=
      static_cast<uint64_t>(state.form))
    reader.refuse("the rows were of another form");
  const uint64_t line = reader.value(uint64_t{1} << 62);
  const bool inside_line = reader.value(state.json() ? 0 : 1) != 0;
  const bool inside_document = reader.value(state.json() ? 0 : 1) != 0;
  const std::string_view in_stream = reader.bytes(kMostPositionBytes);
  reader.end();
  if (in_stream.empty()) reader.refuse("a value is missing");
  state.start(in_stream);
  state.line_number = static_cast<int64_t>(line);
  state.inside_line = inside_line;
  state.inside_document = inside_document;
}

int64_t TextRecordReader::bytes_read() const { return state_->stream->bytes_consumed(); }

int64_t TextRecordReader::bytes_total() const {
  return static_cast<int64_t>(state_->source->size());
}

int64_t TextRecordReader::bad_records() const { return state_->bad_records; }

bool named_as_json_lines(std::string_view path) {
  const std::string whole = lower(path);
  const auto names = split(whole, '/');
  const auto words = split(names.back(), '.');
  const bool file = std::ranges::any_of(words.begin() + 1, words.end(), [](std::string_view word) {
    return word.starts_with("json") || word == "ndjson";
  });
  return file || std::any_of(names.begin(), names.end() - 1, [](std::string_view directory) {
           return directory.ends_with(".json") || directory.ends_with(".jsonl") ||
                  directory.ends_with(".ndjson");
         });
}

bool begins_with_json_record(std::shared_ptr<const ByteSource> source,
                             std::string_view text_field) {
  std::string text(kChunkBytes, '\0');
  text.resize(TextStream(std::move(source)).read(text.data(), text.size()));
  std::string_view rest = text;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
  if (!rest.starts_with('{')) return false;
  return is_json_record(std::string(rest.substr(0, rest.find('\n'))), text_field);
}

std::optional<RecordForm> detect_json_form(std::shared_ptr<const ByteSource> source,
                                           bool skip_bad_lines, std::string_view wanted_text) {
  constexpr int64_t kMostLines = 1000;
  TextRecordReader reader(std::move(source), RecordForm::kJsonText,
                          {.skip_bad_lines = skip_bad_lines});
  TextRecordReader::State& state = *reader.state_;
  while (state.line_number < kMostLines && state.next_line())
    if (auto form = form_of_json_line(state.line, wanted_text)) return form;
  return std::nullopt;
}

}  // namespace tessera
