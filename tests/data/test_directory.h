#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {

// A directory that lives as long as one test.
class TestDirectory {
 public:
  TestDirectory() {
    static int count = 0;
    path_ =
        std::filesystem::path(testing::TempDir()) / cat("tessera_data_", ::getpid(), "_", count++);
    make_directories(path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    write_file_atomic(path_ / name, content);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The message of the UserError that `action` throws, or "" with a test failure if it throws none.
template <class Action>
std::string user_error(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << text

}  // namespace tessera
