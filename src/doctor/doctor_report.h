#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera {

// What tessera doctor found:
//   {"ranks": [host_facts() with "clock_offset": S, "matrix_flops": FLOP/S, "threads": N,
//              "isa": "amx"}, ...],
//    "links": [{"ranks": [0, 1], "latency": S, "bandwidth": BYTES/S}, ...],
//    "directories": [{"path": "/shared", "ranks": check_directory()}, ...]}

// What in it will hurt, one sentence each, by rank and host: what is wrong of itself, and what
// stands out from the other ranks.
std::vector<std::string> doctor_warnings(const nlohmann::json& found);

// One page of it for people, warnings last. Of more than 16 ranks the first and those that are
// warned about.
std::string doctor_page(const nlohmann::json& found, const std::vector<std::string>& warnings);

}  // namespace tessera
