#include "data/document_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/position_bytes.h"
#include "data/table_record_reader.h"
#include "data/text_stream.h"
#include "remote/source.h"

namespace tessera {
namespace {

constexpr char kDocumentKind = 'd';

RecordOptions record_options(const DocumentReaderOptions& options) {
  return {.text_field = options.text_field,
          .vocab_size = options.vocab_size,
          .skip_bad_lines = options.skip_bad_lines,
          .warned = options.warned,
          .longest_document = options.longest_document};
}

bool named_as_table(std::string_view path) {
  const std::string name = lower(path);
  return name.ends_with(".parquet") || name.ends_with(".arrow") || name.ends_with(".feather");
}

// On a server the last bytes of a file would have to be fetched to look at them.
bool is_table(const RemoteEntry& file, const ByteSource& source) {
  if (named_as_table(file.path)) return true;
  return !is_remote(file) && !named_as_json_lines(file.path) && table_form(source).has_value();
}

// By its name, packed or not. As text its rows would be one document, commas and all.
bool named_as_csv(std::string_view path) {
  const std::string name = lower(path.substr(path.rfind('/') + 1));
  const auto words = split(name, '.');
  constexpr std::string_view kPacked[] = {"gz", "zst", "zstd", "xz"};
  const bool packed = std::ranges::find(kPacked, words.back()) != std::end(kPacked);
  if (words.size() < (packed ? 3u : 2u)) return false;
  const std::string_view ending = words[words.size() - (packed ? 2 : 1)];
  return ending == "csv" || ending == "tsv";
}

// An empty file may be of any.
RecordForm form_of(const RemoteEntry& file, const ByteSource& source, RecordKind kind) {
  const bool json = named_as_json_lines(file.path);
  if (!json && named_as_csv(file.path)) {
    throw UserError(cat("'", shown_name(file),
                        "' is a table of comma- or tab-separated values, which are not read: write "
                        "it as Parquet or JSON lines (*.parquet, *.jsonl)"));
  }
  if (kind == RecordKind::kText) return json ? RecordForm::kJsonText : RecordForm::kPlainText;
  if (!json && source.size() > 0) {
    throw UserError(
        cat("'", shown_name(file), "' is plain text, where ",
            kind == RecordKind::kIds ? "rows of ids" : "conversations",
            " are read: give JSON lines (*.json, *.jsonl, *.ndjson, also packed) or a table"));
  }
  return kind == RecordKind::kIds ? RecordForm::kJsonIds : RecordForm::kJsonChat;
}

std::unique_ptr<RecordReader> open_records(const RemoteEntry& file,
                                           std::shared_ptr<const ByteSource> source,
                                           const DocumentReaderOptions& options) {
  if (is_table(file, *source)) {
    return std::make_unique<TableRecordReader>(std::move(source), options.kind,
                                               record_options(options));
  }
  const RecordForm form = form_of(file, *source, options.kind);
  return std::make_unique<TextRecordReader>(std::move(source), form, record_options(options));
}

RecordKind kind_of_first(std::span<const RemoteEntry> files, const DocumentReaderOptions& options) {
  for (const RemoteEntry& file : files) {
    std::shared_ptr<const ByteSource> source = open_source(file, options.remote);
    if (source->size() == 0) continue;
    if (is_table(file, *source))
      return kind_of_table(*open_table(source), options.text_field, options.text_is_wanted);
    if (!named_as_json_lines(file.path)) {
      if (begins_with_json_record(source, options.text_field)) {
        TESSERA_WARN_ONCE(cat("'", shown_name(file),
                              "' begins with a line of JSON and is read as plain text, since its "
                              "name does not say JSON lines: name it *.jsonl"));
      }
      return RecordKind::kText;
    }
    const std::optional<RecordForm> form = detect_json_form(
        source, options.skip_bad_lines, options.text_is_wanted ? options.text_field : "");
    if (!form) continue;
    return *form == RecordForm::kJsonIds    ? RecordKind::kIds
           : *form == RecordForm::kJsonChat ? RecordKind::kChat
                                            : RecordKind::kText;
  }
  return RecordKind::kText;
}

// Also one among others of JSON lines and tables.
void warn_of_plain_text(std::span<const RemoteEntry> files, const DocumentReaderOptions& options) {
  for (const RemoteEntry& file : files) {
    if (named_as_json_lines(file.path) || named_as_table(file.path)) continue;
    const auto source = open_source(file, options.remote);
    if (source->size() == 0 || is_table(file, *source)) continue;
    TESSERA_WARN_ONCE(cat("'", shown_name(file), "' is plain text, where --text_field ",
                          options.text_field,
                          " has no effect: it is for JSON lines (*.jsonl) and tables"));
    return;
  }
}

}  // namespace

std::unique_ptr<RecordReader> open_records(const RemoteEntry& file,
                                           const DocumentReaderOptions& options) {
  return open_records(file, open_source(file, options.remote), options);
}

RecordKind detect_kind(std::span<const RemoteEntry> files, const DocumentReaderOptions& options) {
  const RecordKind kind = kind_of_first(files, options);
  if (kind == RecordKind::kText && options.text_is_wanted) warn_of_plain_text(files, options);
  return kind;
}

int64_t reading_bytes(std::span<const RemoteEntry> files, const DocumentReaderOptions& options) {
  // Of a window that is larger than the text only so much is used. Text packs to a fifth or so.
  constexpr uint64_t kUnpackedPerByte = 32, kLeast = 1 << 20, kLarge = uint64_t{1} << 32;
  uint64_t largest = 0;
  for (const RemoteEntry& file : files) largest = std::max(largest, file.size);
  for (const RemoteEntry& file : files) {
    std::shared_ptr<const ByteSource> source = open_source(file, options.remote);
    if (source->size() == 0) continue;
    if (is_table(file, *source)) {
      const TableRecordReader table(source, options.kind, record_options(options));
      return kTableBatchBytes + table.page_bytes();
    }
    largest = std::max<uint64_t>(largest, source->size());  // what no list says of a web server's
    TextStream text(std::move(source));
    char first = 0;
    text.read(&first, 1);
    const uint64_t used = kLeast + kUnpackedPerByte * std::min(largest, kLarge);
    return std::min(text.memory_bytes(), static_cast<int64_t>(used));
  }
  return 0;
}

struct DocumentReader::State {
  State(std::vector<RemoteEntry> given, DocumentReaderOptions given_options)
      : files(std::move(given)), options(std::move(given_options)) {
    for (const RemoteEntry& entry : files) total += static_cast<int64_t>(entry.size);
  }

  std::vector<RemoteEntry> files;
  DocumentReaderOptions options;
  int64_t total = 0, finished = 0, bad = 0;
  size_t file = 0;                       // the file being read, if one is open, else the next
  bool open = false;                     // `reader` reads it
  std::unique_ptr<RecordReader> reader;  // of it, or of the file before
  TextRecordReader* text = nullptr;      // the same, where it is text
  Record record;

  std::string name() const { return file < files.size() ? shown_name(files[file]) : "data set"; }
  void open_file();
  void close_file();
  TextPart next_part(std::string& part);
  bool next(Record& out);
};

// A reader of text goes over to the next text: it has warned of broken lines already.
void DocumentReader::State::open_file() {
  const RemoteEntry& entry = files[file];
  std::shared_ptr<const ByteSource> source = open_source(entry, options.remote);
  if (text && !is_table(entry, *source)) {
    const RecordForm form = form_of(entry, *source, options.kind);
    text->open(std::move(source), form);
  } else {
    if (reader) bad += reader->bad_records();
    reader = open_records(entry, std::move(source), options);
    text = dynamic_cast<TextRecordReader*>(reader.get());
  }
  open = true;
}

void DocumentReader::State::close_file() {
  finished += reader->bytes_read();
  open = false;
  ++file;
}

bool DocumentReader::State::next(Record& out) {
  for (; open || file < files.size(); close_file()) {
    if (!open) open_file();
    if (reader->next(out)) return true;
  }
  return false;
}

TextPart DocumentReader::State::next_part(std::string& part) {
  part.clear();
  for (; open || file < files.size(); close_file()) {
    if (!open) open_file();
    if (text) {
      if (TextPart read = text->next_part(part); read != TextPart::kNone) return read;
    } else if (reader->next(record)) {
      part.swap(record.text);
      return TextPart::kLast;
    }
  }
  return TextPart::kNone;
}

DocumentReader::DocumentReader(std::vector<RemoteEntry> files, DocumentReaderOptions options)
    : state_(std::make_unique<State>(std::move(files), std::move(options))) {}

DocumentReader::DocumentReader(const std::vector<std::filesystem::path>& files,
                               DocumentReaderOptions options)
    : DocumentReader(local_entries(files), std::move(options)) {}

DocumentReader::~DocumentReader() = default;
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader& DocumentReader::operator=(DocumentReader&&) noexcept = default;

bool DocumentReader::next(Record& record) { return state_->next(record); }

bool DocumentReader::next(std::string& document) {
  document.clear();
  if (!state_->next(state_->record)) return false;
  document.swap(state_->record.text);
  return true;
}

TextPart DocumentReader::next_part(std::string& text) { return state_->next_part(text); }

int64_t DocumentReader::bytes_read() const {
  return state_->finished + (state_->open ? state_->reader->bytes_read() : 0);
}

int64_t DocumentReader::bytes_total() const { return state_->total; }

int64_t DocumentReader::bad_lines() const {
  return state_->bad + (state_->reader ? state_->reader->bad_records() : 0);
}

std::string DocumentReader::position() const {
  PositionWriter writer(kDocumentKind);
  writer.add(uint64_t{state_->files.size()});
  writer.add(uint64_t{state_->file});
  writer.add(std::string_view(state_->open ? state_->reader->position() : ""));
  return writer.finish();
}

void DocumentReader::seek(std::string_view position) {
  State& state = *state_;
  const std::string name = state.name();
  PositionReader reader(position, kDocumentKind, name);
  if (reader.value(UINT64_MAX) != state.files.size())
    reader.refuse("the data has another number of files");
  const auto file = static_cast<size_t>(reader.value(state.files.size()));
  const std::string_view in_file = reader.bytes(kMostPositionBytes);
  reader.end();
  if (file == state.files.size() && !in_file.empty()) reader.refuse("a value is out of range");
  state.file = file;
  state.open = false;
  state.finished = 0;
  for (size_t i = 0; i < file; ++i) state.finished += static_cast<int64_t>(state.files[i].size);
  if (in_file.empty()) return;
  state.open_file();
  state.reader->seek(in_file);
}

}  // namespace tessera
