#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/safetensors.h"

// What is accepted must lie inside the file, tile it and agree with its shape.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    auto header = tessera::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    uint64_t total = 0, begin = size;
    auto take = [&](uint64_t offset, uint64_t bytes) {
      if (offset > size || bytes > size - offset) std::abort();
      begin = std::min(begin, offset);
      total += bytes;
    };
    for (const tessera::TensorInfo& tensor : header.tensors) {
      auto bytes = tessera::num_elements(tensor.shape) * tessera::size_of(tensor.dtype);
      if (static_cast<uint64_t>(bytes) != tensor.bytes) std::abort();
      take(tensor.offset, tensor.bytes);
    }
    for (const tessera::ForeignTensor& tensor : header.foreign) take(tensor.offset, tensor.bytes);
    if (total != size - begin) std::abort();
  } catch (const tessera::UserError&) {
  }
  return 0;
}
