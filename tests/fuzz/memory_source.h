#pragma once
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace tessera {

// The bytes of an input as a source. Reading past their end is a mistake of the reader's.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string content) : content_(std::move(content)) {}
  std::string name() const override { return "input"; }
  uint64_t size() const override { return content_.size(); }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    TESSERA_CHECK(offset <= content_.size() && out.size() <= content_.size() - offset);
    if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
  }

 private:
  std::string content_;
};

}  // namespace tessera
