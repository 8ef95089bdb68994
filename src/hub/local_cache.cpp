#include "hub/local_cache.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<fs::path> directories_in(const fs::path& path) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (is_folder(entry.path())) found.push_back(entry.path());
  }
  return found;
}

// Letters, digits, `-`, `_` and `.`, but no path of its own.
bool is_name(std::string_view text) {
  return is_plain_name(text) && text.size() <= 96 && std::ranges::all_of(text, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
         });
}

std::optional<fs::path> newest_snapshot(const fs::path& model) {
  std::error_code error;
  fs::path main = model / "refs" / "main";
  if (fs::is_regular_file(main, error) && fs::file_size(main, error) < 256) {
    std::string commit(trim(read_file(main)));
    if (is_name(commit) && is_folder(model / "snapshots" / commit))
      return model / "snapshots" / commit;
  }
  std::vector<fs::path> snapshots = directories_in(model / "snapshots");
  auto age = [&](const fs::path& path) { return fs::last_write_time(path, error); };
  auto newest = std::ranges::max_element(snapshots, {}, age);
  if (newest == snapshots.end()) return {};
  return *newest;
}

}  // namespace

std::optional<fs::path> find_cached_model(std::string_view name, const fs::path& hf_home) {
  std::vector<std::string_view> parts = split(name, '/');
  if (parts.size() > 2 || !std::ranges::all_of(parts, is_name)) return {};
  fs::path home = hf_home;
  if (home.empty()) {
    const char* user = std::getenv("HOME");
    if (!user) return {};
    home = fs::path(user) / ".cache" / "huggingface";
  }
  fs::path hub = home / "hub", exact = hub / cat("models--", join(parts, "--"));
  if (is_folder(exact)) return newest_snapshot(exact);
  if (parts.size() == 2) return {};
  std::vector<fs::path> same_name = directories_in(hub);
  std::erase_if(same_name, [&](const fs::path& path) {
    std::vector<std::string_view> words;
    std::string folder = path.filename().string();
    return !folder.starts_with("models--") || !folder.ends_with(cat("--", name)) ||
           folder.find("--", 8) + 2 + name.size() != folder.size();
  });
  if (same_name.size() != 1) return {};
  return newest_snapshot(same_name[0]);
}

}  // namespace tessera
