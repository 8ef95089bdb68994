#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/error.h"
#include "data/text_record_reader.h"
#include "data/text_stream.h"
#include "tests/fuzz/memory_source.h"

namespace {

constexpr size_t kMostText = size_t{4} << 20;

}  // namespace

// Any bytes as a text, packed if they begin like it: documents without zero bytes, or a UserError.
// A stream that goes on from a position gives the same bytes, or fails as the first one did.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto source = std::make_shared<MemorySource>(std::string(data, data + size));
  try {
    TextRecordReader reader(source, RecordForm::kPlainText);
    size_t total = 0;
    for (std::string part; total < kMostText && reader.next_part(part) != TextPart::kNone;) {
      total += part.size();
      if (part.find('\0') != std::string::npos) std::abort();
    }
    if (total < kMostText && reader.bytes_read() != reader.bytes_total()) std::abort();
  } catch (const UserError&) {
  }
  std::string text, position;
  size_t at = 0, steps = 0;
  bool whole = false;
  try {
    TextStream stream(source);
    std::string part(1000, '\0');
    for (size_t n = 1; n > 0 && text.size() < kMostText; ++steps) {
      n = stream.read(part.data(), 1 + (size * 37 + steps * 101) % part.size());
      text.append(part, 0, n);
      whole = n == 0;
      if (steps % 7 == size % 7 && at < 2000) {
        at = text.size() - n / 2;
        position = stream.position(n / 2);
      }
    }
  } catch (const UserError&) {
  }
  if (position.empty()) return 0;
  std::string rest;
  bool ended = false;
  TextStream next(source, position);  // reads what was read before
  if (next.offset() != at) std::abort();
  try {
    std::string part(5000, '\0');
    for (size_t n = 1; n > 0 && at + rest.size() < kMostText;) {
      n = next.read(part.data(), part.size());
      rest.append(part, 0, n);
      ended = n == 0;
    }
  } catch (const UserError&) {
  }
  const size_t common = std::min(rest.size(), text.size() - at);
  if (text.compare(at, common, rest, 0, common) != 0) std::abort();
  if (whole && (!ended || rest.size() != text.size() - at)) std::abort();
  return 0;
}
