#include "hub/parameter_source.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kTile = int64_t{1} << 18;    // elements that a thread reads at once
constexpr int64_t kWindow = int64_t{1} << 24;  // elements between two pieces of advice

std::vector<ParameterTarget::Range> cut(const std::vector<ParameterTarget::Range>& ranges) {
  std::vector<ParameterTarget::Range> tiles;
  for (const ParameterTarget::Range& range : ranges) {
    for (int64_t at = 0; at < range.count; at += kTile) {
      tiles.push_back({range.first + at, std::min(kTile, range.count - at), range.to + at});
    }
  }
  return tiles;
}

}  // namespace

void copy_parameters(const ParameterSource& source, std::span<const ParameterTarget> targets,
                     ThreadPool& pool) {
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()));
  for (const ParameterTarget& target : targets) {
    std::vector<ParameterTarget::Range> tiles = cut(target.ranges);
    for (size_t begin = 0; begin < tiles.size();) {
      size_t end = begin;
      int64_t first = tiles[begin].first, last = first;
      while (end < tiles.size() && (end == begin || tiles[end].first - first < kWindow)) {
        last = tiles[end].first + tiles[end].count;
        ++end;
      }
      source.advise(target.parameter, first, last - first, Advice::kSoon);
      pool.run(static_cast<int64_t>(end - begin), [&](int64_t i, int thread) {
        const ParameterTarget::Range& tile = tiles[begin + static_cast<size_t>(i)];
        std::vector<float>& values = buffers[static_cast<size_t>(thread)];
        values.resize(static_cast<size_t>(tile.count));
        source.read(target.parameter, tile.first, values);
        target.write(tile.to, values);
      });
      source.advise(target.parameter, first, last - first, Advice::kDone);
      begin = end;
    }
  }
}

}  // namespace tessera
