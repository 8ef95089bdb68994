#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/document_reader.h"

// Any bytes as a JSON-lines file: documents or a UserError, and none of them empty. Skipping broken
// lines never gives fewer documents than stopping at the first.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const auto file = std::filesystem::temp_directory_path() /
                           cat("tessera_json_lines_fuzz_", ::getpid(), ".jsonl");
  set_log_level(LogLevel::kError);
  write_file_atomic(file, {reinterpret_cast<const char*>(data), size});
  int64_t documents[2] = {0, 0};
  for (bool skip : {false, true}) {
    try {
      DocumentReader reader({file}, {.skip_bad_lines = skip});
      for (std::string document; reader.next(document);) {
        if (document.empty()) std::abort();
        ++documents[skip];
      }
      if (reader.bytes_read() != reader.bytes_total()) std::abort();
    } catch (const UserError&) {
    }
  }
  std::filesystem::remove(file);
  if (documents[1] < documents[0]) std::abort();
  return 0;
}
