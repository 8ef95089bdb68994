#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace tessera {

// Bytes that are not cleared before they are used. Behind them are kPadding zeros, so that what
// takes bits out of them may load whole words.
class ByteBuffer {
 public:
  static constexpr size_t kPadding = 16;

  std::byte* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  // Of what was there the first `kept` bytes stay; the rest is undefined.
  void resize(size_t size, size_t kept = 0) {
    if (!data_ || size > capacity_) {
      auto larger = std::make_unique_for_overwrite<std::byte[]>(size + kPadding);
      if (kept > 0) std::memcpy(larger.get(), data_.get(), std::min(kept, size_));
      data_ = std::move(larger);
      capacity_ = size;
    }
    size_ = size;
    std::memset(data_.get() + size, 0, kPadding);
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace tessera
