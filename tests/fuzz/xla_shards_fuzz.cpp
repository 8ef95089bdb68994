#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hub/xla_shards.h"

// The file of the only rank. What is accepted has tensors whose elements can be read, the last ones
// too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const std::filesystem::path directory = [] {
    auto made = std::filesystem::temp_directory_path() / cat("xla_shards_fuzz.", ::getpid());
    std::filesystem::create_directories(made);
    std::atexit([] {
      std::filesystem::remove_all(std::filesystem::temp_directory_path() /
                                  cat("xla_shards_fuzz.", ::getpid()));
    });
    return made;
  }();
  write_file_atomic(directory / "rank_0-world_1.pt",
                    std::string(reinterpret_cast<const char*>(data), size));
  try {
    const XlaShards shards(directory);
    for (const XlaTensor& tensor : shards.tensors()) {
      TESSERA_CHECK(tensor.shards.size() == 1 && tensor.first >= 0);
      const int64_t elements = num_elements(tensor.shape);
      if (elements == 0 || elements > 4096 || !tensor.shards[0]->dtype) continue;
      std::vector<std::byte> read(static_cast<size_t>(elements) * tensor.shards[0]->element_bytes);
      shards.read(tensor, whole_box(tensor.shape), read);
    }
  } catch (const UserError&) {
  }
  return 0;
}
