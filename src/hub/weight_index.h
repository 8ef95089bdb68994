#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kWeightIndexName = "model.safetensors.index.json";

// What a directory of a model calls its weights: one file, or an index of several. Where it has
// several kinds, the first is taken.
struct WeightFileNames {
  std::string_view whole, index;
};
inline constexpr WeightFileNames kWeightFileNames[] = {
    {"model.safetensors", kWeightIndexName}, {"pytorch_model.bin", "pytorch_model.bin.index.json"}};

// By tensor, the file of the same directory that has it.
using WeightIndex = std::map<std::string, std::string, std::less<>>;

// Reads the index of a model in several files:
//   {"metadata": {"total_size": 42}, "weight_map": {"NAME": "model-00001-of-00002.safetensors",
//   ...}}
// Keys besides weight_map are not looked at. UserError that names `where`: larger than 64 MiB,
// broken or deeply nested JSON, no weight_map or an empty one, a tensor twice, a file that is not a
// plain name of a .safetensors or .bin file, a name over 1,024 bytes.
WeightIndex parse_weight_index(std::string_view json, std::string_view where);

// The inverse; `total_bytes` of all tensors.
std::string weight_index_json(const WeightIndex& index, int64_t total_bytes);

}  // namespace tessera
