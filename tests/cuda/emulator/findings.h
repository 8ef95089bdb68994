#pragma once
#include <string>
#include <vector>

// What was found wrong with the program under test. One list for the whole emulated library; safe
// to call from several threads.
namespace tessera::emulated_gpu {

// The same rule broken at the same place is one finding, however often; `detail` is of the first.
void found(const std::string& rule, const std::string& detail = "");
std::vector<std::string> findings();
void clear_findings();

// "file:line" of an instruction of this library, where addr2line is installed; else its offset.
std::string source_line(const void* instruction);

}  // namespace tessera::emulated_gpu
