// For tools/goldens/torch_file_goldens.py and by hand: what a checkpoint of
// torch.distributed.checkpoint says of itself, and a small one that this program writes.
//
//   dcp_tool list DIR
//   dcp_tool write DIR
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "tests/torch_files/dcp_sample.h"
#include "torch_files/dcp_checkpoint.h"

namespace {

void list(const char* directory) {
  tessera::DcpCheckpoint checkpoint(directory);
  size_t chunks = 0;
  for (const tessera::DcpTensor& tensor : checkpoint.metadata().tensors) {
    chunks += tensor.chunks.size();
    std::printf("%s %s %s in %zu\n", tensor.name.c_str(), tensor.element_type.c_str(),
                tessera::to_string(tensor.shape).c_str(), tensor.chunks.size());
  }
  for (const tessera::DcpItem& item : checkpoint.metadata().items)
    std::printf("%s\n", item.name.c_str());
  std::printf("%zu tensors in %zu chunks, %zu items, %zu files\n",
              checkpoint.metadata().tensors.size(), chunks, checkpoint.metadata().items.size(),
              checkpoint.metadata().files.size());
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count == 3 && std::strcmp(words[1], "list") == 0) {
      list(words[2]);
      return 0;
    }
    if (count == 3 && std::strcmp(words[1], "write") == 0) {
      tessera::make_directories(words[2]);
      tessera::write_dcp_sample(words[2]);
      return 0;
    }
    std::fputs("usage: dcp_tool list|write DIR\n", stderr);
    return 2;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
