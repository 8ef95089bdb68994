#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace tessera {

// An element type of PyTorch's, by the names that its files have for it.
struct TorchType {
  std::string_view global;     // "torch.float32"
  std::string_view storage;    // the class of storages of older kinds: "torch.FloatStorage", or ""
  uint64_t bytes = 0;          // of an element
  std::optional<DType> dtype;  // nullopt: tensors of ours never have it

  // "float32"
  std::string_view name() const { return global.substr(6); }
};

std::span<const TorchType> torch_types();
// nullptr for another name.
const TorchType* find_torch_type(std::string_view global);
const TorchType* find_storage_type(std::string_view storage);
const TorchType& torch_type(DType dtype);

}  // namespace tessera
