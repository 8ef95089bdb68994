#include "torch_files/strided.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/text.h"

namespace tessera {
namespace {

TEST(Strided, CopiesAnyPartOfAnyView) {
  std::vector<int16_t> storage(200);
  for (size_t i = 0; i < storage.size(); ++i) storage[i] = static_cast<int16_t>(i);
  struct View {
    Shape shape, strides;
  };
  for (const View& view : {View{{3, 4}, {4, 1}}, View{{4, 3}, {1, 4}}, View{{2, 3, 4}, {40, 2, 9}},
                           View{{5, 2}, {0, 1}}, View{{6}, {7}}, View{{1, 5}, {99, 1}}}) {
    std::vector<int16_t> expected;
    const int64_t count = num_elements(view.shape);
    for (int64_t e = 0; e < count; ++e) {
      int64_t rest = e, at = 0;
      for (size_t d = view.shape.size(); d > 0; --d) {
        at += rest % view.shape[d - 1] * view.strides[d - 1];
        rest /= view.shape[d - 1];
      }
      expected.push_back(storage[static_cast<size_t>(at)]);
    }
    for (int64_t first = 0; first <= count; ++first) {
      for (int64_t n = 0; first + n <= count; ++n) {
        std::vector<int16_t> part(static_cast<size_t>(n), -1);
        copy_strided(std::as_bytes(std::span(storage)).data(), view.shape, view.strides, 2, first,
                     std::as_writable_bytes(std::span(part)));
        ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + first))
            << to_string(view.shape) << first << " " << n;
      }
    }
  }
}

TEST(Strided, KnowsRowMajorOrder) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape{});
  EXPECT_TRUE(is_contiguous({}, {}));
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(is_contiguous({2, 1, 3}, {3, 77, 1}));
  EXPECT_TRUE(is_contiguous({0, 3}, {5, 9}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(is_contiguous({2, 3}, {4, 1}));
  EXPECT_FALSE(is_contiguous({2}, {0}));
}

TEST(Strided, ExtentsThatOverflowHaveNone) {
  EXPECT_EQ(storage_extent({2, 3}, {4, 1}, 4), 7);
  EXPECT_EQ(storage_extent({}, {}, 4), 1);
  EXPECT_EQ(storage_extent({0, 3}, {4, 1}, 4), 0);
  EXPECT_EQ(storage_extent({1000}, {0}, 4), 1);
  EXPECT_FALSE(storage_extent({-1}, {1}, 4));
  EXPECT_FALSE(storage_extent({2}, {-1}, 4));
  EXPECT_FALSE(storage_extent({2}, {INT64_MAX}, 4));
  EXPECT_FALSE(storage_extent({INT64_MAX, 2}, {0, 0}, 1));
  EXPECT_FALSE(storage_extent({0, INT64_MAX, 2}, {0, 0, 0}, 1)) << "a zero excuses nothing";
  EXPECT_FALSE(storage_extent({int64_t{1} << 61}, {0}, 4));
}

}  // namespace
}  // namespace tessera
