#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_reader.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/checkpoint/save_boxes.h"

namespace tessera {

template <class T>
StateTarget::Write into(T* data) {
  return [data](int64_t first, std::span<const std::byte> content) {
    std::memcpy(data + first, content.data(), content.size());
  };
}

// A state of two tensors whose content follows from one number.
struct State {
  explicit State(int64_t step) : counter(step) { std::fill(weight.begin(), weight.end(), step); }
  std::vector<StateBox> boxes() const {
    return {
        {"layers.0.w", TensorRole::kWeight, DType::kF32, {3, 4}, {{0, 0}, {3, 4}}, weight.data()},
        {"step", TensorRole::kOther, DType::kI64, {}, {}, &counter}};
  }
  std::vector<StateTarget> targets() {
    return {{"layers.0.w", DType::kF32, {3, 4}, {{0, 0}, {3, 4}}, into(weight.data())},
            {"step", DType::kI64, {}, {}, into(&counter)}};
  }
  std::vector<float> weight = std::vector<float>(12);
  int64_t counter;
};

inline std::filesystem::path save(const std::filesystem::path& directory, int64_t step,
                                  int64_t num_kept = 0, const std::string& model = "llama",
                                  const std::string& run = "{}",
                                  const CheckpointOrigin& origin = {}) {
  State state(step);
  return save_boxes(directory, model, step, state.boxes(), run, {num_kept}, origin);
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

}  // namespace tessera
