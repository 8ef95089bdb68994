#include "data/dataset_files.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

enum class Part { kNone, kTraining, kValidation };

// The first word of the name, between anything but letters, that names a part of a data set.
Part part_of(const std::string& file_name) {
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

[[noreturn]] void fail(const char* option, const fs::path& path, const std::string& cause) {
  throw UserError(cat(option, ": cannot read '", path.string(), "': ", cause));
}

void check_readable(const char* option, const fs::path& path) {
  if (::access(path.c_str(), R_OK) != 0) fail(option, path, std::strerror(errno));
}

std::vector<fs::path> files_in(const char* option, const fs::path& directory) {
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  if (error) fail(option, directory, error.message());
  std::vector<fs::path> files;
  for (const auto& entry : entries) {
    if (entry.path().filename().string().starts_with('.')) continue;
    const fs::file_status status = entry.status(error);
    if (!fs::exists(status)) fail(option, entry.path(), "the link leads nowhere");
    if (fs::is_regular_file(status)) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw UserError(cat(option, ": there is no file in '", directory.string(), "'"));
  }
  std::ranges::sort(files, {}, [](const fs::path& file) { return file.filename().string(); });
  return files;
}

DatasetFiles files_of_dataset(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    fail("--dataset", path,
         fs::status_known(status) ? "there is no such file or directory" : error.message());
  }
  if (fs::is_regular_file(status)) return {{path}, {}};
  if (!fs::is_directory(status)) fail("--dataset", path, "it is neither a file nor a directory");

  DatasetFiles files;
  std::vector<fs::path> others;
  for (const fs::path& file : files_in("--dataset", path)) {
    switch (part_of(file.filename().string())) {
      case Part::kTraining: files.training.push_back(file); break;
      case Part::kValidation: files.validation.push_back(file); break;
      case Part::kNone: others.push_back(file); break;
    }
  }
  if (files.training.empty()) files.training = std::move(others);
  if (files.training.empty()) {
    throw UserError(cat("--dataset: '", path.string(),
                        "' holds validation files only; name the "
                        "training files train*, or give --training_dir"));
  }
  return files;
}

}  // namespace

DatasetFiles find_dataset_files(const DatasetPaths& paths) {
  if (!paths.dataset.empty() && !paths.training_dir.empty()) {
    throw UserError("--dataset and --training_dir exclude each other: give one of them");
  }
  DatasetFiles files;
  if (!paths.training_dir.empty()) {
    files.training = files_in("--training_dir", paths.training_dir);
  } else if (!paths.dataset.empty()) {
    files = files_of_dataset(paths.dataset);
  } else if (paths.test_dir.empty()) {
    throw UserError("there is no text to train on: give --dataset PATH or --training_dir DIR");
  }
  if (!paths.test_dir.empty()) files.validation = files_in("--test_dir", paths.test_dir);

  const char* option = paths.dataset.empty() ? "--training_dir" : "--dataset";
  for (const fs::path& file : files.training) check_readable(option, file);
  for (const fs::path& file : files.validation) {
    check_readable(paths.test_dir.empty() ? option : "--test_dir", file);
  }
  return files;
}

}  // namespace tessera
