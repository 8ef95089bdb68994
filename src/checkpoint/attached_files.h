#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace tessera {

// Small files of the caller that go with a checkpoint, in a folder of it: the tokenizer of a run.
// The manifest names them `tokenizer/NAME`, as all other files.
inline constexpr std::string_view kTokenizerFolder = "tokenizer";

struct AttachedFile {
  std::string name;  // a plain file name
  std::string content;
};

// Whether a manifest may give such a file this name: `tokenizer/` and a plain name.
bool is_attached_name(std::string_view name);

// Writes and flushes the files into the folder of `checkpoint`. UserError with path and cause.
std::vector<ManifestFile> write_attached(const std::filesystem::path& checkpoint,
                                         std::span<const AttachedFile> files);

// Removes those that the manifest names, or all while there is no manifest, then the folder unless
// something foreign is left in it. To be called before the manifest is removed.
void remove_attached(const std::filesystem::path& checkpoint);

}  // namespace tessera
