#include "base/error.h"
#include "base/file.h"
#include "torch_files/dcp_metadata.h"

// What is accepted has whole tensors, in boxes that lie in them and in files beside it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    DcpMetadata metadata = parse_dcp_metadata(std::as_bytes(std::span(data, size)), "fuzz");
    for (const std::string& file : metadata.files) TESSERA_CHECK(is_plain_name(file));
    for (const DcpTensor& tensor : metadata.tensors) {
      int64_t elements = 0;
      for (const DcpChunk& chunk : tensor.chunks) {
        TESSERA_CHECK(chunk.place.file < metadata.files.size());
        TESSERA_CHECK(chunk.box.begin.size() == tensor.shape.size());
        for (size_t i = 0; i < tensor.shape.size(); ++i) {
          TESSERA_CHECK(chunk.box.begin[i] >= 0 && chunk.box.shape[i] > 0);
          TESSERA_CHECK(chunk.box.begin[i] + chunk.box.shape[i] <= tensor.shape[i]);
        }
        elements += num_elements(chunk.box.shape);
      }
      TESSERA_CHECK(elements == num_elements(tensor.shape));
      if (elements <= 4096) {  // each of them once
        std::vector<int> seen(static_cast<size_t>(elements));
        for (const DcpChunk& chunk : tensor.chunks) {
          for_each_common_run(whole_box(tensor.shape), chunk.box,
                              [&](int64_t first, int64_t, int64_t count) {
                                for (int64_t e = first; e < first + count; ++e)
                                  TESSERA_CHECK(++seen[static_cast<size_t>(e)] == 1);
                              });
        }
      }
      TESSERA_CHECK(metadata.find_tensor(tensor.name) == &tensor);
    }
    for (const DcpItem& item : metadata.items) {
      TESSERA_CHECK(item.place.file < metadata.files.size());
      TESSERA_CHECK(metadata.find_item(item.name) == &item);
    }
  } catch (const UserError&) {
  }
  return 0;
}
