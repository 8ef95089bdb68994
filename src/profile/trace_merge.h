#pragma once
#include <filesystem>
#include <span>
#include <string>

namespace tessera {

struct MergedTraces {
  size_t ranks = 0, arrows = 0;
};

// One trace of those of several ranks (files, directories), all by the clock of rank 0, with an
// arrow from who came last to an exchange to everybody who waited there. UserError for what does
// not belong together.
MergedTraces merge_traces(std::span<const std::string> paths, const std::filesystem::path& to);

}  // namespace tessera
