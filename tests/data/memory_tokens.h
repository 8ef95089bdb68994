#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ignore_index.h"
#include "data/document_view.h"
#include "data/token_view.h"

namespace tessera {

// Ids in memory in place of a cache's.
class MemoryTokens : public TokenStore {
 public:
  template <class Ids>
  explicit MemoryTokens(const Ids& ids) : ids_(ids.begin(), ids.end()) {}
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + begin, out.size(), out.begin());
  }
  void read_targets(int64_t begin, std::span<int32_t> out) const override {
    read(begin, out);
    for (size_t i = 0; learned && i < out.size(); ++i)
      if (!learned(begin + static_cast<int64_t>(i))) out[i] = kIgnoreIndex;
  }
  bool all_learned() const override { return !learned; }
  TokenView view() const { return {*this, std::ssize(ids_)}; }

  std::function<bool(int64_t token)> learned;  // none: all are

 private:
  std::vector<int32_t> ids_;
};

// Documents of these lengths, one after the other.
class MemoryDocuments : public DocumentTable {
 public:
  explicit MemoryDocuments(std::span<const int64_t> lengths) {
    for (int64_t length : lengths) offsets_.push_back(offsets_.back() + length);
  }
  void read_offsets(int64_t first, std::span<int64_t> out) const override {
    std::copy_n(offsets_.begin() + first, out.size(), out.begin());
  }
  DocumentView view() const { return {*this, std::ssize(offsets_) - 1}; }
  int64_t tokens() const { return offsets_.back(); }

 private:
  std::vector<int64_t> offsets_{0};
};

}  // namespace tessera
