#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/document_reader.h"

// Any bytes as a text file, gzip if they begin like it: documents without zero bytes, or a
// UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const auto file =
      std::filesystem::temp_directory_path() / cat("tessera_gzip_text_fuzz_", ::getpid());
  write_file_atomic(file, {reinterpret_cast<const char*>(data), size});
  try {
    DocumentReader reader({file});
    for (std::string document; reader.next(document);) {
      if (document.empty() || document.find('\0') != std::string::npos) std::abort();
    }
    if (reader.bytes_read() != reader.bytes_total()) std::abort();
  } catch (const UserError&) {
  }
  std::filesystem::remove(file);
  return 0;
}
