#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "checkpoint/checkpoint.h"

namespace tessera {

// An empty directory of the running test, gone with it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            cat("tessera-", info->test_suite_name(), "-", info->name(), "-", ::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The message of the exception of type E that `action` throws; a failure if it throws none.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// A state of two tensors whose content follows from one number.
struct State {
  explicit State(int64_t step) : counter(step) { std::fill(weight.begin(), weight.end(), step); }
  std::vector<TensorView> views() const {
    return {{"layers.0.w", DType::kF32, {3, 4}, weight.data()},
            {"step", DType::kI64, {}, &counter}};
  }
  std::vector<TensorBuffer> buffers() {
    return {{"layers.0.w", DType::kF32, {3, 4}, weight.data()},
            {"step", DType::kI64, {}, &counter}};
  }
  std::vector<float> weight = std::vector<float>(12);
  int64_t counter;
};

inline std::filesystem::path save(const std::filesystem::path& directory, int64_t step,
                                  int64_t num_kept = 0, const std::string& model = "llama",
                                  const std::string& run = "{}") {
  State state(step);
  return save_checkpoint(directory, model, step, state.views(), run, num_kept);
}

using Names = std::set<std::string>;

inline Names names_in(const std::filesystem::path& directory) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

inline void make_file(const std::filesystem::path& path, const std::string& content = "x") {
  std::ofstream(path) << content;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tessera
