#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace tessera {

// Token ids stored as 16 or 32 bits, somewhere else.
class TokenView {
 public:
  TokenView() = default;
  explicit TokenView(std::span<const uint16_t> ids)
      : narrow_(ids.data()), count_(static_cast<int64_t>(ids.size())) {}
  explicit TokenView(std::span<const uint32_t> ids)
      : wide_(ids.data()), count_(static_cast<int64_t>(ids.size())) {}

  int64_t count() const { return count_; }
  int32_t operator[](int64_t i) const {
    return narrow_ ? int32_t{narrow_[i]} : static_cast<int32_t>(wide_[i]);
  }
  // Ids begin ... begin + out.size() - 1, all of which exist.
  void copy(int64_t begin, std::span<int32_t> out) const {
    if (narrow_) {
      std::copy_n(narrow_ + begin, out.size(), out.data());
    } else {
      std::copy_n(wide_ + begin, out.size(), out.data());
    }
  }
  // Ids [begin, begin + count).
  TokenView slice(int64_t begin, int64_t count) const {
    TokenView part;
    part.narrow_ = narrow_ ? narrow_ + begin : nullptr;
    part.wide_ = wide_ ? wide_ + begin : nullptr;
    part.count_ = count;
    return part;
  }

 private:
  const uint16_t* narrow_ = nullptr;
  const uint32_t* wide_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace tessera
