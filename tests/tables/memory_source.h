#pragma once
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace tessera {

// Bytes in memory as a file called "memory"; counts what is read.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string content) : content_(std::move(content)) {}
  std::string name() const override { return "memory"; }
  uint64_t size() const override { return content_.size(); }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    TESSERA_CHECK(offset <= content_.size() && out.size() <= content_.size() - offset,
                  "a read outside the source");
    if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
    bytes_read_ += out.size();
  }
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::string content_;
  mutable uint64_t bytes_read_ = 0;
};

}  // namespace tessera
