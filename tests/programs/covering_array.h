#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace tessera {

// One value a factor, as an index; -1 where it is still open.
using Row = std::vector<int>;
// Whether a row, open where it is, can be completed to one that counts.
using RowPredicate = std::function<bool(const Row&)>;

// A pairwise covering array (Cohen et al. 1997, "The AETG system"): complete rows such that every
// pair of values of two factors that `possible` allows stands in one. Greedy: of some candidates,
// each grown from a pair not yet covered, the row that covers most is taken. The same every time.
class CoveringArray {
 public:
  CoveringArray(std::vector<int> sizes, RowPredicate possible)
      : sizes_(std::move(sizes)), possible_(std::move(possible)) {
    const Row open(sizes_.size(), -1);
    for (int f = 0; f < factors(); ++f) {
      for (int g = f + 1; g < factors(); ++g) {
        for (int a = 0; a < size(f); ++a) {
          for (int b = 0; b < size(g); ++b) {
            Row row = with(with(open, f, a), g, b);
            if (possible_(row)) uncovered_.insert(row);
          }
        }
      }
    }
    pairs_ = uncovered_.size();
    while (!uncovered_.empty()) {
      Row best;
      int64_t most = 0;
      size_t stride = uncovered_.size() / kCandidates + 1, at = 0;
      for (const Row& pair : uncovered_) {
        if (at++ % stride != 0) continue;
        Row row = complete(pair);
        auto covers = std::count_if(uncovered_.begin(), uncovered_.end(),
                                    [&](const Row& p) { return stands_in(p, row); });
        if (covers > most) {
          most = covers;
          best = row;
        }
      }
      std::erase_if(uncovered_, [&](const Row& p) { return stands_in(p, best); });
      rows_.push_back(best);
    }
  }

  const std::vector<Row>& rows() const { return rows_; }
  size_t pairs() const { return pairs_; }

 private:
  static constexpr size_t kCandidates = 16;

  int factors() const { return static_cast<int>(sizes_.size()); }
  int size(int f) const { return sizes_[static_cast<size_t>(f)]; }
  static int at(const Row& row, int f) { return row[static_cast<size_t>(f)]; }
  static Row with(Row row, int f, int value) {
    row[static_cast<size_t>(f)] = value;
    return row;
  }
  static bool stands_in(const Row& part, const Row& row) {
    for (size_t f = 0; f < part.size(); ++f) {
      if (part[f] >= 0 && part[f] != row[f]) return false;
    }
    return true;
  }

  // Fills what is open, one factor after the other, each with the value that covers most.
  Row complete(Row row) const {
    const Row open(sizes_.size(), -1);
    for (int f = 0; f < factors(); ++f) {
      if (at(row, f) >= 0) continue;
      int best = -1, most = -1;
      for (int a = 0; a < size(f); ++a) {
        if (!possible_(with(row, f, a))) continue;
        int covers = 0;
        for (int g = 0; g < factors(); ++g) {
          if (g != f && at(row, g) >= 0)
            covers += uncovered_.contains(with(with(open, f, a), g, at(row, g)));
        }
        if (covers > most) {
          most = covers;
          best = a;
        }
      }
      row = with(row, f, best);
    }
    return row;
  }

  std::vector<int> sizes_;
  RowPredicate possible_;
  std::set<Row> uncovered_;  // pairs, as rows with two values
  std::vector<Row> rows_;
  size_t pairs_ = 0;
};

}  // namespace tessera
