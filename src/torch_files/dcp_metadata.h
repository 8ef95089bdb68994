#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "checkpoint/tensor_box.h"

namespace tessera {

// What a checkpoint of torch.distributed.checkpoint (DCP) says of itself in its file .metadata.

inline constexpr std::string_view kDcpMetadataName = ".metadata";

// A part of a file of the checkpoint: one whole file of torch.save.
struct DcpPlace {
  uint32_t file = 0;  // number in DcpMetadata::files
  uint64_t offset = 0, bytes = 0;
};

struct DcpChunk {
  TensorBox box;
  DcpPlace place;
};

struct DcpTensor {
  std::string name;
  std::string element_type;    // as PyTorch calls it: "float32"
  std::optional<DType> dtype;  // nullopt: one that is not among DType's
  Shape shape;
  std::vector<DcpChunk> chunks;  // by their beginnings; none is empty
};

// Anything but a tensor: a number, a list, a dict.
struct DcpItem {
  std::string name;
  DcpPlace place;
};

struct DcpMetadata {
  std::vector<std::string> files;  // names in the directory of the checkpoint
  std::vector<DcpTensor> tensors;  // by name
  std::vector<DcpItem> items;      // by name

  // nullptr if there is none of that name.
  const DcpTensor* find_tensor(std::string_view name) const;
  const DcpItem* find_item(std::string_view name) const;
};

// Reads a whole .metadata, of PyTorch 2.0 and later; see Pickle for `progress`. Memory: some 700
// bytes a chunk while it is read, 140 behind that.
//
// UserError that names `where` and the tensor: what Pickle reports, anything but the classes of
// such a file in the places where they belong, a chunk outside of its tensor or without a place,
// chunks that overlap or do not make up their tensor, a file outside of the directory, bytes that
// were transformed (compressed) on the way.
DcpMetadata parse_dcp_metadata(std::span<const std::byte> content, const std::string& where,
                               const std::function<void(size_t)>& progress = {});

}  // namespace tessera
