#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/interruption.h"

namespace tessera {

// Where token ids are kept.
class TokenStore {
 public:
  virtual ~TokenStore() = default;
  // Ids begin ... begin + out.size() - 1, all of which are stored. By many threads at once.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  // The same as targets: the id, or kIgnoreIndex where the token is not learned.
  virtual void read_targets(int64_t begin, std::span<int32_t> out) const { read(begin, out); }
  // Whether read_targets() is read().
  virtual bool all_learned() const { return true; }
};

// Some of the ids of a store, which must live longer.
class TokenView {
 public:
  TokenView() = default;
  TokenView(const TokenStore& store, int64_t count) : store_(&store), count_(count) {}

  int64_t begin() const { return begin_; }  // the number of the first in the store
  int64_t count() const { return count_; }
  bool all_learned() const { return !store_ || store_->all_learned(); }
  // Ids begin ... begin + out.size() - 1, all of which exist. What the store throws.
  void copy(int64_t begin, std::span<int32_t> out) const {
    if (!out.empty()) store_->read(begin_ + begin, out);
  }
  // The same as targets: kIgnoreIndex where a token is not learned.
  void copy_targets(int64_t begin, std::span<int32_t> out) const {
    if (!out.empty()) store_->read_targets(begin_ + begin, out);
  }
  // Ids [begin, begin + count).
  TokenView slice(int64_t begin, int64_t count) const {
    TokenView part = *this;
    part.begin_ += begin;
    part.count_ = count;
    return part;
  }
  // Calls visit(id) with all ids in order. Interrupted when that is requested.
  template <class Visit>
  void for_each(Visit visit) const {
    std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(count_, 1 << 16)));
    for (int64_t begin = 0; begin < count_; begin += std::ssize(ids)) {
      check_interruption();
      std::span part(ids.data(), static_cast<size_t>(std::min(count_ - begin, std::ssize(ids))));
      copy(begin, part);
      for (int32_t id : part) visit(id);
    }
  }

 private:
  const TokenStore* store_ = nullptr;
  int64_t begin_ = 0, count_ = 0;
};

}  // namespace tessera
