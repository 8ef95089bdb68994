#pragma once
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/dtype.h"

// What the reader and the writer of safetensors files share. Included by safetensors*.cpp only.
namespace tessera {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 1024;
// A checkpoint of the deepest model that is accepted (4,096 layers) has 200,000.
constexpr size_t kMaxTensors = size_t{1} << 18;
constexpr size_t kMaxMetadata = size_t{1} << 16;
constexpr size_t kMaxRank = 32;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::pair<std::string_view, DType> kStoredDTypes[] = {
    {"F64", DType::kF64}, {"F32", DType::kF32}, {"BF16", DType::kBF16}, {"F16", DType::kF16},
    {"I64", DType::kI64}, {"I32", DType::kI32}, {"BOOL", DType::kBool}};

// Element types of the format that tensors of ours never have, and the bytes of an element.
constexpr std::pair<std::string_view, uint64_t> kForeignTypes[] = {
    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2}, {"I16", 2}, {"U32", 4},     {"U64", 8}};

}  // namespace tessera
