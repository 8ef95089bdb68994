#include "torch_files/torch_types.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace tessera {
namespace {

constexpr TorchType kTypes[] = {
    {"torch.float32", "torch.FloatStorage", 4, DType::kF32},
    {"torch.bfloat16", "torch.BFloat16Storage", 2, DType::kBF16},
    {"torch.float16", "torch.HalfStorage", 2, DType::kF16},
    {"torch.float64", "torch.DoubleStorage", 8, DType::kF64},
    {"torch.int64", "torch.LongStorage", 8, DType::kI64},
    {"torch.int32", "torch.IntStorage", 4, DType::kI32},
    {"torch.bool", "torch.BoolStorage", 1, DType::kBool},
    {"torch.int16", "torch.ShortStorage", 2, {}},
    {"torch.int8", "torch.CharStorage", 1, {}},
    {"torch.uint8", "torch.ByteStorage", 1, {}},
    {"torch.uint16", "", 2, {}},
    {"torch.uint32", "", 4, {}},
    {"torch.uint64", "", 8, {}},
    {"torch.float8_e4m3fn", "", 1, {}},
    {"torch.float8_e5m2", "", 1, {}},
    {"torch.float8_e4m3fnuz", "", 1, {}},
    {"torch.float8_e5m2fnuz", "", 1, {}},
    {"torch.float8_e8m0fnu", "", 1, {}},
    {"torch.complex64", "torch.ComplexFloatStorage", 8, {}},
    {"torch.complex128", "torch.ComplexDoubleStorage", 16, {}},
};

}  // namespace

std::span<const TorchType> torch_types() { return kTypes; }

const TorchType* find_torch_type(std::string_view global) {
  auto found = std::ranges::find(kTypes, global, &TorchType::global);
  return found == std::end(kTypes) ? nullptr : found;
}

const TorchType* find_storage_type(std::string_view storage) {
  auto found = std::ranges::find(kTypes, storage, &TorchType::storage);
  return storage.empty() || found == std::end(kTypes) ? nullptr : found;
}

const TorchType& torch_type(DType dtype) {
  auto found = std::ranges::find(kTypes, dtype, &TorchType::dtype);
  TESSERA_CHECK(found != std::end(kTypes));
  return *found;
}

}  // namespace tessera
