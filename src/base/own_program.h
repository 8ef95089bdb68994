#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

// The relocatable tarball brings its own dynamic loader, and a script starts it with this program
// as its argument. /proc/self/exe is the loader then, which starts nothing by itself.

// The script; no value where the kernel started this program itself, so that /proc/self/exe starts
// it again.
std::optional<std::string> start_script();

// The file with the code of this program.
std::string program_file();

// Hash of that file, read in parts: mapped, all of it would count as memory of this process.
uint64_t program_hash();

}  // namespace tessera
