#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "observe/scalars.h"

namespace tessera {

// TensorBoard's event files: records of a length, its checksum, an Event message of Protocol
// Buffers and its checksum. Each function makes one record.

// Scalars are kept as f32. `wall_time`: seconds since 1970. The first record of every file.
std::string version_record(double wall_time);
// What files of the same directory that were begun earlier say of this step and later ones is not
// shown.
std::string restart_record(double wall_time, int64_t step);
std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars);
std::string histogram_record(double wall_time, int64_t step, std::string_view tag,
                             const Distribution& values);
// Markdown.
std::string text_record(double wall_time, int64_t step, std::string_view tag,
                        std::string_view text);

}  // namespace tessera
