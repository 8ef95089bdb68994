#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "hub/family_names.h"
#include "hub/parameter_source.h"

namespace tessera {

// Metadata of every file that write_weights() made: {"written_by": "tessera"}.
inline constexpr std::string_view kWriterKey = "written_by", kWriter = "tessera";

// Writes the parameters of a model as transformers reads them: model.safetensors, or, where that
// would exceed `max_shard_bytes`, model-00001-of-0000N.safetensors and so on with their index. A
// tensor is never cut, so one that is larger is a file of its own. `dtype` is f32, bf16 or f16,
// rounded to nearest even. UserError when the disk fails, and for a weight that is too large for
// f16, with its name.
void write_weights(const std::filesystem::path& directory, std::span<const FileTensor> tensors,
                   const ParameterSource& source, DType dtype, int64_t max_shard_bytes);

// A parameter's values as they are written. UserError, as there.
void convert_weights(const std::string& parameter, std::span<const float> values, DType dtype,
                     std::vector<std::byte>& bytes);

// The same as write_weights() to one file of any name.
void write_weight_file(const std::filesystem::path& path, std::span<const FileTensor> tensors,
                       const ParameterSource& source, DType dtype);

}  // namespace tessera
