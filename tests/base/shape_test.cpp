#include "base/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({3, 0, 5}), 0);
  EXPECT_EQ(num_elements({int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
}

TEST(Shape, RefusesWhat64BitsDoNotCount) {
  std::string message = user_error([] {
    num_elements({int64_t{1} << 32, 1000, int64_t{1} << 31});
  });
  expect_contains(message, "[4294967296, 1000, 2147483648] has more elements than 64 bits");
  EXPECT_EQ(checked_add(INT64_MAX - 1, 1), INT64_MAX);
  EXPECT_THROW(checked_add(INT64_MAX, 1), UserError);
  EXPECT_THROW(checked_add(INT64_MIN, -1), UserError);
}

}  // namespace
}  // namespace tessera
