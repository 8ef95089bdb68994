#include "data/dataset_files.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/hub_name.h"
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

// The files below a directory, in the order of their paths.
class Walk {
 public:
  Walk(const char* option, const fs::path& directory) : option_(option), top_(directory) {
    enter(directory);
    if (files.empty()) {
      std::ranges::sort(left_out_);
      size_t more = left_out_.size() > kNamed ? left_out_.size() - kNamed : 0;
      left_out_.resize(left_out_.size() - more);
      if (more > 0) left_out_.push_back(cat(more, " more"));
      throw UserError(cat(option, ": there is no file in '", directory.string(), "'",
                          left_out_.empty() ? "" : cat("; left out: ", join(left_out_, ", "))));
    }
    std::ranges::sort(files, {}, [](const fs::path& file) { return file.generic_string(); });
  }

  std::vector<fs::path> files;

 private:
  static constexpr size_t kNamed = 5;

  void enter(const fs::path& directory) {
    std::error_code error;
    fs::directory_iterator entries(directory, error);
    if (error) fail(option_, directory, error.message());
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
        files.push_back(entry.path());
      } else {
        leave_out("no regular file");
      }
    }
  }

  const char* option_;
  const fs::path& top_;
  std::vector<std::string> left_out_;
};

std::vector<fs::path> files_in(const char* option, const fs::path& directory) {
  return Walk(option, directory).files;
}

// Of a file below `directory`: what its name says, else the innermost directory whose name does.
Part part_of(const fs::path& file, const fs::path& directory) {
  const fs::path below = file.lexically_relative(directory);
  for (fs::path path = below; !path.empty(); path = path.parent_path()) {
    Part part = part_of(path.filename().string());
    if (part != Part::kNone) return part;
  }
  return Part::kNone;
}

DatasetFiles files_of_dataset(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    fail("--dataset", path,
         fs::status_known(status)
             ? cat("there is no such file or directory",
                   fetch_advice(path.string(), " --repo-type dataset", "--dataset"))
             : error.message());
  }
  if (fs::is_regular_file(status)) return {{path}, {}};
  if (!fs::is_directory(status)) fail("--dataset", path, "it is neither a file nor a directory");

  DatasetFiles files;
  std::vector<fs::path> others;
  for (const fs::path& file : files_in("--dataset", path)) {
    switch (part_of(file, path)) {
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
