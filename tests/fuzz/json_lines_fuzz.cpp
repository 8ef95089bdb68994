#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "data/text_record_reader.h"
#include "tests/fuzz/memory_source.h"

namespace {

using namespace tessera;

constexpr int64_t kVocabulary = 1000;

void check(const Record& record) {
  if (record.text.empty() && record.ids.empty() && record.messages.empty() && record.spans.empty())
    std::abort();
  if (!record.labels.empty() && record.labels.size() != record.ids.size()) std::abort();
  for (int32_t id : record.ids)
    if (id < 0 || id >= kVocabulary) std::abort();
  if (record.text.find('\0') != std::string::npos) std::abort();
}

}  // namespace

// Any bytes as JSON lines of every form: records or a UserError, and none of them empty. Skipping
// broken lines never gives fewer than stopping at the first. A reader that goes on from a position
// gives as many as are left.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kError);
  // Packed text has a fuzzer of its own; windows of 128 MiB take long under AddressSanitizer.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.substr(0, 4) == "\x28\xb5\x2f\xfd" || input.substr(0, 4).ends_with("\x2a\x4d\x18"))
    return 0;
  auto source = std::make_shared<MemorySource>(std::string(data, data + size));
  try {
    detect_json_form(source);
  } catch (const UserError&) {
  }
  for (RecordForm form : {RecordForm::kJsonText, RecordForm::kJsonIds, RecordForm::kJsonChat}) {
    int64_t records[2] = {0, 0}, place = 0;
    std::string position;
    bool whole = false;
    for (bool skip : {false, true}) {
      try {
        TextRecordReader reader(source, form, {.vocab_size = kVocabulary, .skip_bad_lines = skip});
        for (Record record; reader.next(record); ++records[skip]) {
          check(record);
          if (skip && records[skip] < 3) {
            position = reader.position();
            place = records[skip] + 1;
          }
        }
        if (reader.bytes_read() != reader.bytes_total()) std::abort();
        whole = skip;
      } catch (const UserError&) {
      }
    }
    if (records[1] < records[0]) std::abort();
    if (!whole || position.empty()) continue;
    TextRecordReader reader(source, form, {.vocab_size = kVocabulary, .skip_bad_lines = true});
    reader.seek(position);
    for (Record record; reader.next(record);) ++place;
    if (place != records[1]) std::abort();
  }
  return 0;
}
