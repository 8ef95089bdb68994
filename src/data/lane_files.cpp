#include "data/lane_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/sample_order.h"

namespace tessera {

int64_t LaneFiles::parts(int64_t lane) const {
  if (shared() == 0) return rounds();
  const int64_t first = lane * shared() / lanes_, last = ((lane + 1) * shared() - 1) / lanes_;
  return rounds() + last - first + 1;
}

LanePart LaneFiles::part(int64_t lane, int64_t epoch, int64_t i) const {
  TESSERA_CHECK(lane >= 0 && lane < lanes_ && i >= 0 && i < parts(lane),
                cat("part ", i, " of lane ", lane));
  const SampleOrder order(seed_, files_, shuffle_);
  auto file = [&](int64_t place) {
    return static_cast<size_t>(order.at(epoch * files_ + place).window);
  };
  if (i < rounds()) return {file(i * lanes_ + lane)};
  // The shared files in a row, each as many units long as there are lanes: a lane has shared() of
  // these units.
  const int64_t nth = lane * shared() / lanes_ + i - rounds();
  const int64_t begin = lane * shared() - nth * lanes_;
  return {file(rounds() * lanes_ + nth), std::max<int64_t>(begin, 0),
          std::min(begin + shared(), lanes_), lanes_};
}

}  // namespace tessera
