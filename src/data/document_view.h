#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/interruption.h"

namespace tessera {

// Tokens [begin, end) of a store.
struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

// Where the documents of a token store lie: document i is tokens [offset i, offset i + 1), at least
// one, and they lie one behind the other without a gap.
class DocumentTable {
 public:
  virtual ~DocumentTable() = default;
  // Offsets first ... first + out.size() - 1, in order. By many threads at once.
  virtual void read_offsets(int64_t first, std::span<int64_t> out) const = 0;
};

// Some documents of a table, which must live longer. Ranges are those of the whole store.
class DocumentView {
 public:
  DocumentView() = default;
  DocumentView(const DocumentTable& table, int64_t count) : table_(&table), count_(count) {}

  int64_t count() const { return count_; }
  // Document i in [0, count()). What the table throws.
  TokenRange operator[](int64_t i) const {
    int64_t offsets[2];
    table_->read_offsets(first_ + i, offsets);
    return {offsets[0], offsets[1]};
  }
  // The document that holds a token of theirs. What the table throws.
  int64_t document_of(int64_t token) const {
    int64_t low = 0, high = count_;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      ((*this)[middle].begin <= token ? low : high) = middle;
    }
    return low;
  }
  DocumentView slice(int64_t first, int64_t count) const {
    DocumentView part = *this;
    part.first_ += first;
    part.count_ = count;
    return part;
  }
  // Calls visit(range) with all of them in order, in little memory. Interrupted when that is
  // requested.
  template <class Visit>
  void for_each(Visit visit) const {
    constexpr int64_t kAtOnce = 8192;
    std::vector<int64_t> offsets(static_cast<size_t>(std::min(count_, kAtOnce)) + 1);
    for (int64_t first = 0; first < count_; first += kAtOnce) {
      check_interruption();
      const auto read = static_cast<size_t>(std::min(count_ - first, kAtOnce));
      table_->read_offsets(first_ + first, std::span(offsets).first(read + 1));
      for (size_t i = 0; i < read; ++i) visit(TokenRange{offsets[i], offsets[i + 1]});
    }
  }

 private:
  const DocumentTable* table_ = nullptr;
  int64_t first_ = 0, count_ = 0;
};

}  // namespace tessera
