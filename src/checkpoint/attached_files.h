#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace tessera {

// Small files of the caller that go with a checkpoint, in folders of it: the tokenizer of a run,
// and where it is in its data. The manifest names them `tokenizer/NAME` and `data/NAME`, as all
// other files.
inline constexpr std::string_view kTokenizerFolder = "tokenizer";
inline constexpr std::string_view kDataFolder = "data";

struct AttachedFile {
  std::string name;  // a plain file name
  std::string content;
  std::string_view folder = kTokenizerFolder;  // or kDataFolder
};

// Whether a manifest may give such a file this name: one of the folders and a plain name.
bool is_attached_name(std::string_view name);

// Writes and flushes the files into the folders of `checkpoint`. UserError with path and cause.
std::vector<ManifestFile> write_attached(const std::filesystem::path& checkpoint,
                                         std::span<const AttachedFile> files);

// Removes those that the manifest names, or all where no manifest can be read, then the folders
// unless something foreign is left in them. To be called before the manifest is removed.
void remove_attached(const std::filesystem::path& checkpoint);

}  // namespace tessera
