#include <algorithm>
#include <vector>

#include "base/error.h"
#include "torch_files/torch_archive.h"

// What is accepted lies in the file, and its elements can be read, the last ones too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    TorchArchive archive(std::as_bytes(std::span(data, size)), "fuzz");
    for (const TorchTensor& tensor : archive.tensors()) {
      TESSERA_CHECK(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
      TESSERA_CHECK(archive.find(tensor.name) == &tensor);
      const int64_t count = num_elements(tensor.shape), some = std::min<int64_t>(count, 100);
      std::vector<std::byte> elements(static_cast<size_t>(some) * tensor.element_bytes);
      archive.read(tensor, 0, elements);
      archive.read(tensor, count - some, elements);
    }
  } catch (const UserError&) {
  }
  return 0;
}
