#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

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
  TokenView view() const { return {*this, std::ssize(ids_)}; }

 private:
  std::vector<int32_t> ids_;
};

}  // namespace tessera
