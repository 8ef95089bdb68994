#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct ProgramOutput {
  int status = 0;  // 128 + n: killed by signal n
  std::string out;
  std::string err;
};

// Runs a program of PATH with its words and no input, and returns what it wrote, a mebibyte of each
// stream at most. No value where it cannot be started; DeviceError where it did not end in time: it
// was killed then.
std::optional<ProgramOutput> program_output(const std::vector<std::string>& words,
                                            std::chrono::milliseconds timeout);

}  // namespace tessera
