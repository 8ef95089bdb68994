#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/control.h"

namespace tessera {

// What all ranks see of a directory, by rank:
//   [{"sees_same_files": true, "free": BYTES, "write": BYTES/S, "read": BYTES/S} or
//    {"error": "why"}, ...]
// The first rank makes a file that the others look for (where it cannot, no rank has
// "sees_same_files"); then all write and read a file of `bytes` of their own at the same time, past
// the page cache where the file system can. Nothing is left there. All ranks call it, in the same
// order; without `control` there is one. CommError as that.
nlohmann::json check_directory(Control* control, const std::string& directory, int64_t bytes);

}  // namespace tessera
