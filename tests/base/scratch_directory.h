#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/text.h"

namespace tessera {

// An empty directory of the running test, gone with this object. A test may have several.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    static int count = 0;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        cat("tessera-", test->test_suite_name(), "-", test->name(), "-", ::getpid(), "-", count++);
    std::replace(name.begin(), name.end(), '/', '-');  // of tests with parameters
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(path_);  // of an earlier process with this number
    make_directories(path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

  // Writes or replaces a file; its path.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view content) const {
    write_file_atomic(path_ / name, content);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera
