#include "base/streaming_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

TEST(StreamingCopy, CopiesAnyBytesToAnyPlaceAndNoOthers) {
  std::vector<std::byte> from(600);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 513})
    for (size_t at = 0; at < 66; ++at)
      for (size_t first : {0, 1, 31}) {
        std::vector<std::byte> to(640), expected(640);
        auto part = std::span(from).subspan(first, bytes);
        std::ranges::copy(part, expected.begin() + static_cast<ptrdiff_t>(at));
        streaming_copy(std::span(to).subspan(at), part);
        EXPECT_EQ(to, expected) << bytes << " bytes from " << first << " to " << at;
      }
}

TEST(StreamingCopy, RefusesTooLittleRoom) {
  std::vector<std::byte> from(3), to(2);
  EXPECT_THROW(streaming_copy(to, from), InternalError);
}

}  // namespace
}  // namespace tessera
