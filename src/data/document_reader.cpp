#include "data/document_reader.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/position_bytes.h"

namespace tessera {
namespace {

constexpr char kKind = 'd';
constexpr size_t kMostPositionBytes = size_t{64} << 10;

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

RecordForm form_of(const std::filesystem::path& path) {
  return named_as_json_lines(path.filename().string()) ? RecordForm::kJsonText
                                                       : RecordForm::kPlainText;
}

}  // namespace

struct DocumentReader::State {
  State(std::vector<std::filesystem::path> given, const DocumentReaderOptions& options)
      : files(std::move(given)),
        reader(RecordOptions{.text_field = options.text_field,
                             .skip_bad_lines = options.skip_bad_lines}) {
    for (const auto& path : files) total += size_of_file(path);
  }

  std::vector<std::filesystem::path> files;
  TextRecordReader reader;
  int64_t total = 0, finished = 0;
  size_t file = 0;    // the file being read, if one is open, else the next
  bool open = false;  // `reader` reads it

  std::string name() const { return file < files.size() ? files[file].string() : "data set"; }
  void open_file();
  TextPart next(std::string& text, bool whole);
};

void DocumentReader::State::open_file() {
  reader.open(std::make_shared<ReadFile>(files[file]), form_of(files[file]));
  open = true;
}

TextPart DocumentReader::State::next(std::string& text, bool whole) {
  text.clear();
  while (open || file < files.size()) {
    if (!open) open_file();
    const TextPart read = !whole                   ? reader.next_part(text)
                          : reader.next_text(text) ? TextPart::kLast
                                                   : TextPart::kNone;
    if (read != TextPart::kNone) return read;
    finished += reader.bytes_read();
    open = false;
    ++file;
  }
  return TextPart::kNone;
}

DocumentReader::DocumentReader(std::vector<std::filesystem::path> files,
                               DocumentReaderOptions options)
    : state_(std::make_unique<State>(std::move(files), options)) {}

DocumentReader::~DocumentReader() = default;
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader& DocumentReader::operator=(DocumentReader&&) noexcept = default;

bool DocumentReader::next(std::string& document) {
  return state_->next(document, true) != TextPart::kNone;
}

TextPart DocumentReader::next_part(std::string& text) { return state_->next(text, false); }

int64_t DocumentReader::bytes_read() const {
  return state_->finished + (state_->open ? state_->reader.bytes_read() : 0);
}

int64_t DocumentReader::bytes_total() const { return state_->total; }

int64_t DocumentReader::bad_lines() const { return state_->reader.bad_records(); }

std::string DocumentReader::position() const {
  PositionWriter writer(kKind);
  writer.add(uint64_t{state_->files.size()});
  writer.add(uint64_t{state_->file});
  writer.add(std::string_view(state_->open ? state_->reader.position() : ""));
  return writer.finish();
}

void DocumentReader::seek(std::string_view position) {
  State& state = *state_;
  const std::string name = state.name();
  PositionReader reader(position, kKind, name);
  if (reader.value(UINT64_MAX) != state.files.size())
    reader.refuse("the data has another number of files");
  const auto file = static_cast<size_t>(reader.value(state.files.size()));
  const std::string_view in_file = reader.bytes(kMostPositionBytes);
  reader.end();
  if (file == state.files.size() && !in_file.empty()) reader.refuse("a value is out of range");
  state.file = file;
  state.open = false;
  state.finished = 0;
  for (size_t i = 0; i < file; ++i) state.finished += size_of_file(state.files[i]);
  if (in_file.empty()) return;
  state.open_file();
  state.reader.seek(in_file);
}

}  // namespace tessera
