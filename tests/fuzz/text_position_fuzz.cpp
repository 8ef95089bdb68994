#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "data/text_record_reader.h"
#include "data/text_stream.h"
#include "tests/fuzz/memory_source.h"

namespace {

// "one\ntwo\n" in every form, in two blocks, frames or members where there are such.
constexpr std::string_view kPlain = "one\ntwo\n";
constexpr std::string_view kGzip(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xca\xcf\x4b\xe5\x02\x00\x00\x00"
    "\xff\xff\x2b\x29\xcf\xe7\x02\x00\xe6\x0b\xba\x12\x08\x00\x00\x00",
    34);
constexpr std::string_view kZstd(
    "\x28\xb5\x2f\xfd\x04\x58\x21\x00\x00\x6f\x6e\x65\x0a\xdf\x16\x68\x09\x28"
    "\xb5\x2f\xfd\x04\x58\x21\x00\x00\x74\x77\x6f\x0a\x0f\x2d\x04\xf9",
    34);
constexpr std::string_view kXz(
    "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x0c\x00"
    "\x00\x00\x8f\x98\x41\x9c\x01\x00\x03\x6f\x6e\x65\x0a\x00\xf5\x5c\xbb\x56"
    "\x1f\xc6\xfd\x86\x02\x00\x21\x01\x0c\x00\x00\x00\x8f\x98\x41\x9c\x01\x00"
    "\x03\x74\x77\x6f\x0a\x00\x65\x06\xd6\xff\xc4\xc0\xf9\x3a\x00\x02\x1c\x04"
    "\x1c\x04\x00\x00\x9b\xea\xef\x6e\xb1\xc4\x67\xfb\x02\x00\x00\x00\x00\x04"
    "\x59\x5a",
    92);
constexpr std::array<std::string_view, 4> kSources{kPlain, kGzip, kZstd, kXz};

}  // namespace

// Any bytes as a position: refused, or text of at most what is there. The magic number and the hash
// are put right, so that what stands between is reached.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  std::string position = std::string("TSRP\x01") + std::string(data + 1, data + size);
  const uint64_t hash = hash_text(position);
  position.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  auto source = std::make_shared<MemorySource>(std::string(kSources[data[0] % kSources.size()]));
  try {
    TextStream stream(source, position);
    std::string part(100000, '\0');
    for (int reads = 0; reads < 100 && stream.read(part.data(), part.size()) > 0; ++reads)
      stream.position();
  } catch (const UserError&) {
  }
  for (RecordForm form : {RecordForm::kPlainText, RecordForm::kJsonText}) {
    try {
      TextRecordReader reader(source, form, {.skip_bad_lines = true});
      reader.seek(position);
      Record record;
      for (int reads = 0; reads < 100 && reader.next(record); ++reads) reader.position();
    } catch (const UserError&) {
    }
  }
  return 0;
}
