#include "data/document_reader.h"

#include <simdjson.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/text_stream.h"

namespace tessera {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr std::string_view kSeparator = "<|endoftext|>";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool holds_json_lines(const std::filesystem::path& path) {
  return path.filename().string().find(".json") != std::string::npos;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int64_t size_of_file(const std::filesystem::path& path) {
  std::error_code error;
  auto status = std::filesystem::status(path, error);
  std::string cause = error                                       ? error.message()
                      : std::filesystem::is_directory(status)     ? "it is a directory"
                      : !std::filesystem::is_regular_file(status) ? "it is not a regular file"
                                                                  : "";
  if (!cause.empty()) throw UserError(cat("cannot read '", path.string(), "': ", cause));
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

}  // namespace

struct DocumentReader::State {
  std::vector<std::filesystem::path> files;
  DocumentReaderOptions options;
  int64_t total = 0, finished = 0, bad_lines = 0;

  size_t file = 0;  // the file being read, if `stream` is there, else the next
  std::optional<TextStream> stream;
  bool json = false;
  std::string chunk = std::string(kChunkBytes, '\0');
  size_t begin = 0, end = 0;                          // what is left in `chunk`
  int64_t unpacked = 0;                               // bytes taken from `stream`
  int64_t line_number = 0;                            // of the last JSON line read
  bool inside_line = false, inside_document = false;  // of plain text, between two parts
  std::string line;
  simdjson::dom::parser parser;

  std::string name() const { return cat("'", files[file].string(), "'"); }
  bool open_next();
  bool fill();
  enum class Line { kWhole, kPart, kNone };
  Line append_line(std::string& out, int64_t limit, const char* advice, int64_t part);
  TextPart next_plain(std::string& text, int64_t part);
  TextPart next(std::string& text, int64_t part);
  bool next_json(std::string& document);
  const char* parse_line(std::string& document);
  void report_bad_line(const char* problem);
};

bool DocumentReader::State::open_next() {
  if (file == files.size()) return false;
  stream.emplace(files[file]);
  json = holds_json_lines(files[file]);
  begin = end = 0;
  unpacked = line_number = 0;
  inside_line = inside_document = false;
  return true;
}

bool DocumentReader::State::fill() {
  begin = 0;
  end = stream->read(chunk.data(), chunk.size());
  if (!json) {
    if (const void* zero = std::memchr(chunk.data(), '\0', end)) {
      throw UserError(cat(name(), " looks binary: there is a zero byte at offset ",
                          unpacked + (static_cast<const char*>(zero) - chunk.data()),
                          "; give plain text, gzip or JSON lines"));
    }
  }
  unpacked += static_cast<int64_t>(end);
  return end > 0;
}

// Appends the next line with its end, or of one that is longer than a separator as much as makes
// `out` a part; kNone when the file has no more.
DocumentReader::State::Line DocumentReader::State::append_line(std::string& out, int64_t limit,
                                                               const char* advice, int64_t part) {
  const size_t start = out.size();
  for (;;) {
    if (begin == end && !fill()) return out.size() > start ? Line::kWhole : Line::kNone;
    if (static_cast<int64_t>(out.size()) >= part && out.size() - start > kSeparator.size() + 2)
      return Line::kPart;
    const char* from = chunk.data() + begin;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end - begin));
    size_t n = newline ? static_cast<size_t>(newline - from) + 1 : end - begin;
    if (static_cast<int64_t>(out.size() + n) > limit) {
      throw UserError(cat(name(), json ? cat(", line ", line_number + 1) : std::string(),
                          ": longer than ", format_bytes(limit), "; ", advice));
    }
    out.append(from, n);
    begin += n;
    if (newline) return Line::kWhole;
  }
}

TextPart DocumentReader::State::next_plain(std::string& text, int64_t part) {
  for (;;) {
    if (static_cast<int64_t>(text.size()) >= part) {
      inside_document = true;
      return TextPart::kMore;
    }
    const size_t start = text.size();
    const bool whole = !inside_line;
    Line read = append_line(text, kMaxDocumentBytes,
                            "separate its documents by lines '<|endoftext|>'", part);
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

bool DocumentReader::State::next_json(std::string& document) {
  for (;;) {
    line.clear();
    if (append_line(line, kMaxJsonLineBytes, "JSON lines hold one document each", INT64_MAX) ==
        Line::kNone)
      return false;
    ++line_number;
    if (line_number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (trim(line).empty()) continue;
    if (const char* problem = parse_line(document)) {
      report_bad_line(problem);
    } else if (!document.empty()) {
      return true;
    }
  }
}

// What is wrong with `line`, or nullptr: then `document` holds its text.
const char* DocumentReader::State::parse_line(std::string& document) {
  line.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  simdjson::dom::element value;
  if (auto error = parser.parse(line.data(), line.size(), false).get(value)) {
    return simdjson::error_message(error);
  }
  simdjson::dom::object object;
  if (value.get(object)) return "not an object";
  simdjson::dom::element field;
  if (object.at_key("text").get(field)) return "there is no key \"text\"";
  std::string_view text;
  if (field.get(text)) return "\"text\" is not a string";
  if (text.find('\0') != std::string_view::npos) return "\"text\" holds a zero byte (\\u0000)";
  document.assign(text);
  return nullptr;
}

void DocumentReader::State::report_bad_line(const char* problem) {
  std::string message = cat(name(), ", line ", line_number, ": ", problem);
  if (!options.skip_bad_lines) {
    throw UserError(cat(message,
                        "; a line must be a JSON object with a string \"text\" "
                        "(--on_bad_line=skip leaves such lines out)"));
  }
  if (bad_lines++ == 0) TESSERA_WARN(cat("skipping broken lines, the first: ", message));
}

DocumentReader::DocumentReader(std::vector<std::filesystem::path> files,
                               DocumentReaderOptions options)
    : state_(std::make_unique<State>()) {
  for (const auto& file : files) state_->total += size_of_file(file);
  state_->files = std::move(files);
  state_->options = options;
}

DocumentReader::~DocumentReader() = default;
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader& DocumentReader::operator=(DocumentReader&&) noexcept = default;

TextPart DocumentReader::State::next(std::string& text, int64_t part) {
  text.clear();
  while (stream || open_next()) {
    TextPart read = !json             ? next_plain(text, part)
                    : next_json(text) ? TextPart::kLast
                                      : TextPart::kNone;
    if (read != TextPart::kNone) return read;
    finished += stream->bytes_consumed();
    stream.reset();
    ++file;
  }
  return TextPart::kNone;
}

bool DocumentReader::next(std::string& document) {
  return state_->next(document, INT64_MAX) != TextPart::kNone;
}

TextPart DocumentReader::next_part(std::string& text) { return state_->next(text, kPartBytes); }

int64_t DocumentReader::bytes_read() const {
  return state_->finished + (state_->stream ? state_->stream->bytes_consumed() : 0);
}

int64_t DocumentReader::bytes_total() const { return state_->total; }

int64_t DocumentReader::bad_lines() const { return state_->bad_lines; }

}  // namespace tessera
