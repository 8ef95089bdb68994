#include "data/dataset_files.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/hub_name.h"
#include "base/log.h"
#include "base/text.h"
#include "data/training_choice.h"
#include "remote/hub_files.h"
#include "remote/hub_listing.h"
#include "remote/hub_reference.h"
#include "remote/source.h"
#include "remote/url.h"
#include "tables/saved_dataset.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

enum class Part { kNone, kTraining, kValidation };

// The first word of the name, between anything but letters, that names a part of a data set.
Part part_of_name(const std::string& file_name) {
  std::string word;
  for (char c : lower(file_name) + '.') {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += c;
      continue;
    }
    if (word == "train" || word == "training") return Part::kTraining;
    if (word == "val" || word == "valid" || word == "validation" || word == "test") {
      return Part::kValidation;
    }
    word.clear();
  }
  return Part::kNone;
}

// What a file's name says, else the innermost directory whose name does.
Part part_of_path(const fs::path& below) {
  // Keys of S3 may begin with a slash.
  for (fs::path path = below.relative_path(); !path.empty(); path = path.parent_path()) {
    Part part = part_of_name(path.filename().string());
    if (part != Part::kNone) return part;
  }
  return Part::kNone;
}

[[noreturn]] void fail(const char* option, const fs::path& path, const std::string& cause) {
  throw UserError(cat(option, ": cannot read '", path.string(), "': ", cause));
}

RemoteEntry local_entry(const char* option, const fs::path& path, std::string name) {
  std::error_code error;
  const auto status = fs::status(path, error);
  std::string cause = error                               ? error.message()
                      : fs::is_directory(status)          ? "it is a directory"
                      : !fs::is_regular_file(status)      ? "it is not a regular file"
                      : ::access(path.c_str(), R_OK) != 0 ? std::strerror(errno)
                                                          : "";
  if (!cause.empty()) {
    if (*option != '\0') fail(option, path, cause);
    throw UserError(cat("cannot read '", path.string(), "': ", cause));
  }
  RemoteEntry entry;
  entry.path = std::move(name);
  entry.url = path.string();
  entry.size = fs::file_size(path);
  return entry;
}

// A file of a data set, with the part that its description gives it.
struct Found {
  RemoteEntry entry;
  Part part = Part::kNone;
};

// The files below a directory: those of saved data sets in their own order, all others by path.
class Walk {
 public:
  Walk(const char* option, const fs::path& directory) : option_(option), top_(directory) {
    enter(directory);
    if (!files.empty()) return;
    std::ranges::sort(left_out_);
    size_t more = left_out_.size() > kNamed ? left_out_.size() - kNamed : 0;
    left_out_.resize(left_out_.size() - more);
    if (more > 0) left_out_.push_back(cat(more, " more"));
    throw UserError(cat(option, ": there is no file in '", directory.string(), "'",
                        left_out_.empty() ? "" : cat("; left out: ", join(left_out_, ", "))));
  }

  std::vector<Found> files;

 private:
  static constexpr size_t kNamed = 5;

  bool take_saved_dataset(const fs::path& directory) {
    auto splits = saved_dataset(directory);
    if (!splits) return false;
    if (directory != top_)
      TESSERA_INFO(cat("'", directory.string(), "' is a saved data set: it is what is read there"));
    for (const SavedSplit& split : *splits) {
      Part part = part_of_name(split.name);
      if (part == Part::kNone) part = part_of_path(directory.lexically_relative(top_));
      for (const fs::path& file : split.files) add(file, part);
    }
    return true;
  }

  void add(const fs::path& file, Part part) {
    files.push_back(
        {local_entry(option_, file, file.lexically_relative(top_).generic_string()), part});
  }

  void enter(const fs::path& directory) {
    if (take_saved_dataset(directory)) return;
    std::error_code error;
    fs::directory_iterator listing(directory, error);
    if (error) fail(option_, directory, error.message());
    std::vector<fs::directory_entry> entries(listing, {});
    // As the whole paths sort: a directory among files as its name with a slash.
    auto key = [](const fs::directory_entry& entry) {
      std::error_code ignored;
      return entry.path().filename().string() + (entry.is_directory(ignored) ? "/" : "");
    };
    std::ranges::sort(entries, {}, key);
    for (const auto& entry : entries) {
      const fs::file_status status = entry.status(error);
      auto leave_out = [&](const char* why) {
        left_out_.push_back(cat(entry.path().lexically_relative(top_).string(), " (", why, ")"));
      };
      if (entry.path().filename().string().starts_with('.')) {
        leave_out("hidden");
      } else if (!fs::exists(status)) {
        fail(option_, entry.path(), "the link leads nowhere");
      } else if (fs::is_directory(status)) {
        // A link might lead in a circle.
        if (entry.is_symlink(error))
          leave_out("link to a directory");
        else
          enter(entry.path());
      } else if (fs::is_regular_file(status)) {
        add(entry.path(), part_of_path(entry.path().lexically_relative(top_)));
      } else {
        leave_out("no regular file");
      }
    }
  }

  const char* option_;
  const fs::path& top_;
  std::vector<std::string> left_out_;
};

std::vector<RemoteEntry> entries_of(std::vector<Found> found) {
  std::vector<RemoteEntry> entries;
  for (Found& file : found) entries.push_back(std::move(file.entry));
  return entries;
}

// Descriptions among the files of a data set are no data, unless there is nothing else.
void leave_out_descriptions(const std::string& name, std::vector<Found>& files) {
  auto describes = [](const Found& file) { return is_description(file.entry.path); };
  if (std::ranges::all_of(files, describes)) return;
  // Those with other names are known to be none.
  auto may_hold_data = [&](const Found& file) {
    return fs::path(file.entry.path).filename().string().starts_with('_') && file.entry.size > 0;
  };
  const auto first = std::ranges::find_if(files, may_hold_data);
  if (first != files.end()) {
    log_once(
        LogLevel::kInfo, __FILE__, __LINE__,
        cat("'", name, "': files whose names begin with an underscore are no data, the first: '",
            shown_name(first->entry), "'; give its own name to read one"));
  }
  std::erase_if(files, describes);
}

// The files that match a pattern; none where it is no pattern, or nothing does. Those of
// directories that match if no file does.
std::vector<Found> files_of_pattern(const char* option, const std::string& pattern) {
  if (!is_pattern(pattern)) return {};
  glob_t matches{};
  std::vector<Found> files;
  std::vector<fs::path> directories;
  const fs::path above = fs::path(pattern.substr(0, pattern.find_first_of("*?["))).parent_path();
  auto below = [&](const fs::path& path) {
    return part_of_path(above.empty() ? path : path.lexically_relative(above));
  };
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) {
      const fs::path path = matches.gl_pathv[i];
      std::error_code error;
      if (fs::is_directory(path, error)) {
        directories.push_back(path);
      } else {
        files.push_back({local_entry(option, path, path.generic_string()), below(path)});
      }
    }
  }
  ::globfree(&matches);
  if (!files.empty() && !directories.empty()) {
    TESSERA_WARN_ONCE(cat("'", pattern,
                          "' matches files and directories: what is in the latter is "
                          "left out, the first: '",
                          directories[0].string(), "'"));
    directories.clear();
  }
  for (const fs::path& directory : directories) {
    for (Found& file : Walk(option, directory).files) {
      if (file.part == Part::kNone) file.part = below(directory);
      file.entry.path = (directory / file.entry.path).generic_string();
      files.push_back(std::move(file));
    }
  }
  // Where the pattern itself asks for validation files, they are what is wanted.
  const bool asked =
      std::ranges::all_of(files, [](const Found& file) { return file.part == Part::kValidation; });
  if (asked)
    for (Found& file : files) file.part = Part::kTraining;
  return files;
}

std::vector<RemoteEntry> list_remote(const std::string& name, const std::string& config,
                                     const RemoteOptions& remote) {
  if (config.empty()) return list_files(name, remote);
  auto reference = name.starts_with("hf://") ? parse_hub_reference(name)
                                             : find_dataset_name(name).value_or(HubReference{});
  if (!reference.is_dataset)
    throw UserError(cat("--dataset_config_name ", config, ": '", name,
                        "' is no data set on the hub; leave it out"));
  reference.config = config;
  return list_hub_files(reference, remote);
}

std::vector<Found> remote_files(const std::string& name, const std::string& config,
                                const RemoteOptions& remote) {
  std::vector<Found> files;
  for (RemoteEntry& entry : list_remote(name, config, remote)) {
    const Part part = entry.split.empty() ? part_of_path(entry.path) : part_of_name(entry.split);
    files.push_back({std::move(entry), part});
  }
  return files;
}

// What is no path of this machine and no data set that is known may still be one on the hub.
std::string missing(const std::string& name) {
  return cat("there is no such file or directory",
             is_plain_name(name) && !is_file_name(name)
                 ? cat("; a data set on the hub is given as hf://datasets/", name)
                 : "");
}

// All files that a name stands for, descriptions too.
std::vector<Found> all_files_of_name(const char* option, const std::string& name,
                                     const std::string& config, const RemoteOptions& remote) {
  std::error_code error;
  if (auto files = files_of_pattern(option, name); !files.empty()) return files;
  if (is_remote_name(name)) return remote_files(name, config, remote);
  const fs::file_status status = fs::status(name, error);
  if (!fs::exists(status))
    fail(option, name, fs::status_known(status) ? missing(name) : error.message());
  if (fs::is_regular_file(status))
    return {{local_entry(option, name, fs::path(name).filename().string()), Part::kNone}};
  if (!fs::is_directory(status)) fail(option, name, "it is neither a file nor a directory");
  if (!config.empty() && fs::is_directory(fs::path(name) / config, error))
    return Walk(option, fs::path(name) / config).files;
  std::vector<Found> files = Walk(option, name).files;
  auto of_other_split = [&](const Found& file) { return split_of(file.entry.path) != config; };
  const bool is_split = !config.empty() && !std::ranges::all_of(files, of_other_split);
  if (is_split) std::erase_if(files, of_other_split);
  const bool has_folders = std::ranges::any_of(
      files, [](const Found& file) { return file.entry.path.find('/') != std::string::npos; });
  if (!config.empty() && has_folders)
    TESSERA_WARN_ONCE(cat("--dataset_config_name ", config, ": '", name,
                          "' has no such directory; all of its files ",
                          is_split ? "of that split " : "", "are taken"));
  return files;
}

std::vector<Found> files_of_name(const char* option, const std::string& name,
                                 const std::string& config, const RemoteOptions& remote) {
  std::vector<Found> files = all_files_of_name(option, name, config, remote);
  leave_out_descriptions(name, files);
  return files;
}

DatasetFiles files_of_dataset(const DatasetNames& names, const RemoteOptions& remote) {
  std::vector<Found> found = files_of_name(names.option, names.dataset, names.config, remote);
  const bool one_file =
      found.size() == 1 && fs::path(names.dataset).filename() == found[0].entry.path;
  DatasetFiles files;
  std::vector<RemoteEntry> others;
  for (Found& file : found) {
    const Part part = one_file ? Part::kTraining : file.part;
    auto& list = part == Part::kTraining     ? files.training
                 : part == Part::kValidation ? files.validation
                                             : others;
    list.push_back(std::move(file.entry));
  }
  if (files.training.empty()) files.training = std::exchange(others, {});
  warn_of_files_left_alone(names.dataset, others);
  if (files.training.empty()) {
    throw UserError(cat(names.option, ": '", names.dataset,
                        "' holds validation files only; name the "
                        "training files train*, or give --training_dir"));
  }
  if (!is_pattern(names.dataset)) {
    keep_one_kind(names.dataset, files);
    warn_of_several_splits(names.dataset, names.config, files.training);
  }
  return files;
}

// All files of a directory, or those with the suffix if there are any.
std::vector<RemoteEntry> files_of_directory(const char* option, const std::string& name,
                                            const std::string& suffix,
                                            const RemoteOptions& remote) {
  std::error_code error;
  // A directory that is not here is no data set on the hub.
  if (!is_address(name) && !fs::is_directory(name, error)) {
    fail(option, name,
         fs::exists(name, error) ? "it is not a directory" : "there is no such file or directory");
  }
  std::vector<RemoteEntry> files = entries_of(files_of_name(option, name, "", remote));
  auto fits = [&](const RemoteEntry& file) { return file.path.ends_with(suffix); };
  if (std::ranges::any_of(files, fits))
    std::erase_if(files, [&](auto& file) { return !fits(file); });
  return files;
}

}  // namespace

bool is_pattern(std::string_view name) { return name.find_first_of("*?[") != name.npos; }

DatasetFiles find_dataset_files(const DatasetNames& names, const RemoteOptions& remote) {
  if (!names.dataset.empty() && !names.training_dir.empty()) {
    throw UserError("--dataset and --training_dir exclude each other: give one of them");
  }
  DatasetFiles files;
  if (!names.training_dir.empty()) {
    files.training = files_of_directory("--training_dir", names.training_dir, names.suffix, remote);
  } else if (!names.dataset.empty()) {
    files = files_of_dataset(names, remote);
  } else if (names.test_dir.empty() && names.validation.empty()) {
    throw UserError("there is no text to train on: give --dataset PATH or --training_dir DIR");
  }
  if (!names.validation.empty()) {
    files.validation =
        entries_of(files_of_name("--validation_dataset", names.validation, "", remote));
  } else if (!names.test_dir.empty()) {
    files.validation = files_of_directory("--test_dir", names.test_dir, names.suffix, remote);
  }
  return files;
}

// A field a line, eight a file: none of them holds a line end, or the file is left to its names.
std::string to_text(const DatasetFiles& files) {
  std::string text = cat(files.training.size(), "\n", files.validation.size(), "\n");
  for (const auto* list : {&files.training, &files.validation}) {
    for (const RemoteEntry& entry : *list) {
      for (std::string_view field : {std::string_view(entry.path), std::string_view(entry.url)}) {
        if (field.find('\n') != std::string_view::npos)
          throw UserError(cat("'", field, "' has a line end in its name; rename the file"));
      }
      text += cat(entry.path, "\n", entry.url, "\n", entry.size, "\n", entry.etag, "\n",
                  entry.sha256, "\n", entry.git_sha1, "\n", entry.revision, "\n");
    }
  }
  return text;
}

DatasetFiles dataset_files_from_text(std::string_view text) {
  auto line = [&] {
    const size_t end = text.find('\n');
    TESSERA_CHECK(end != std::string_view::npos, "a list of files that is cut short");
    std::string field(text.substr(0, end));
    text.remove_prefix(end + 1);
    return field;
  };
  auto number = [&] { return std::stoull(line()); };
  DatasetFiles files;
  const size_t training = number(), validation = number();
  for (size_t i = 0; i < training + validation; ++i) {
    RemoteEntry entry;
    entry.path = line();
    entry.url = line();
    entry.size = number();
    entry.etag = line();
    entry.sha256 = line();
    entry.git_sha1 = line();
    entry.revision = line();
    (i < training ? files.training : files.validation).push_back(std::move(entry));
  }
  return files;
}

std::vector<RemoteEntry> local_entries(std::span<const fs::path> paths) {
  std::vector<RemoteEntry> entries;
  for (const fs::path& path : paths)
    entries.push_back(local_entry("", path, path.filename().string()));
  return entries;
}

bool is_remote(const RemoteEntry& entry) {
  return entry.url.starts_with("http://") || entry.url.starts_with("https://") ||
         entry.url.starts_with("s3://");
}

uint64_t file_identity(const RemoteEntry& entry) {
  if (is_remote(entry)) {
    uint64_t hash = hash_combine(hash_text(public_url(entry.url)), entry.size);
    return hash_combine(hash, hash_text(cat(entry.etag, "\n", entry.sha256, "\n", entry.git_sha1,
                                            "\n", entry.revision)));
  }
  std::error_code error;
  const auto size = fs::file_size(entry.url, error);
  const auto changed = error ? fs::file_time_type{} : fs::last_write_time(entry.url, error);
  if (error) throw UserError(cat("cannot read '", entry.url, "': ", error.message()));
  uint64_t hash = hash_text(fs::absolute(entry.url).lexically_normal().string());
  return hash_combine(hash_combine(hash, size),
                      static_cast<uint64_t>(changed.time_since_epoch().count()));
}

std::string shown_name(const RemoteEntry& entry) {
  return is_remote(entry) ? public_url(entry.url) : entry.url;
}

}  // namespace tessera
