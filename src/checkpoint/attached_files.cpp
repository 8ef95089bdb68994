#include "checkpoint/attached_files.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFolders[] = {kTokenizerFolder, kDataFolder};

void remove_folder(const fs::path& checkpoint, std::string_view folder_name) {
  fs::path folder = checkpoint / folder_name;
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  std::optional<std::vector<ManifestFile>> own;
  try {
    own = read_manifest(checkpoint).files;
  } catch (const UserError&) {
    // There is none, or it names nothing any more.
  }
  std::vector<fs::path> gone;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = cat(folder_name, "/", it->path().filename().string());
    bool ours = own ? std::ranges::count(*own, name, &ManifestFile::name) > 0
                    : fs::is_regular_file(it->symlink_status(error));
    if (ours) gone.push_back(it->path());
  }
  for (const fs::path& path : gone) {
    if (!error) fs::remove(path, error);
  }
  if (error) throw UserError(cat("cannot clear '", folder.string(), "': ", error.message()));
  fs::remove(folder, error);  // fails where something foreign is in it
}

}  // namespace

bool is_attached_name(std::string_view name) {
  size_t slash = name.find('/');
  return slash != std::string_view::npos &&
         std::ranges::count(kFolders, name.substr(0, slash)) > 0 &&
         is_plain_name(name.substr(slash + 1));
}

std::vector<ManifestFile> write_attached(const fs::path& checkpoint,
                                         std::span<const AttachedFile> files) {
  std::vector<ManifestFile> written;
  for (const AttachedFile& file : files) {
    std::string name = cat(file.folder, "/", file.name);
    TESSERA_CHECK(is_attached_name(name), cat("no file can be attached as '", name, "'"));
    if (!is_in_bucket(checkpoint)) make_directories(checkpoint / file.folder);
    write_content(checkpoint / name, file.content);
    written.push_back({name, file.content.size(), hash_text(file.content)});
  }
  return written;
}

void remove_attached(const fs::path& checkpoint) {
  for (std::string_view folder : kFolders) remove_folder(checkpoint, folder);
}

}  // namespace tessera
