#include "data/best_fit.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"

namespace tessera {

BestFitPacker::BestFitPacker(int64_t context, int64_t buffer) : context_(context), buffer_(buffer) {
  TESSERA_CHECK(context > 0 && buffer > 0);
}

void BestFitPacker::add(int64_t length, std::vector<PackedWindow>& out) {
  TESSERA_CHECK(length >= 0);
  const int64_t document = documents_++;
  int64_t begin = 0;
  for (; length - begin >= context_; begin += context_) {
    out.push_back({{{document, begin, context_}}, context_});
  }
  if (begin == length) return;
  pieces_.push_back({document, begin, length - begin});
  if (std::ssize(pieces_) == buffer_) finish(out);
}

void BestFitPacker::finish(std::vector<PackedWindow>& out) {
  // They came in the order of documents, which is kept among equal ones.
  std::ranges::stable_sort(pieces_, std::greater<>(), &PackedPiece::length);
  const size_t first = out.size();
  std::set<std::pair<int64_t, size_t>> room;  // of the windows that have some, and where they are
  for (const PackedPiece& piece : pieces_) {
    const auto fit = room.lower_bound({piece.length, 0});
    size_t window = out.size();
    int64_t left = context_;
    if (fit == room.end()) {
      out.emplace_back();
    } else {
      left = fit->first;
      window = fit->second;
      room.erase(fit);
    }
    out[window].pieces.push_back(piece);
    out[window].length += piece.length;
    if (left > piece.length) room.emplace(left - piece.length, window);
  }
  for (size_t window = first; window < out.size(); ++window) {
    std::ranges::sort(out[window].pieces, {}, &PackedPiece::document);
  }
  pieces_.clear();
}

}  // namespace tessera
