#include "checkpoint/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace tessera {
namespace {

// Which elements of the whole tensor a box has, in its order.
std::vector<int64_t> elements_of(const TensorBox& box, const Shape& shape) {
  std::vector<int64_t> elements(static_cast<size_t>(box.elements()), -1);
  int64_t found = for_each_common_run(whole_box(shape), box,
                                      [&](int64_t in_whole, int64_t in_box, int64_t count) {
                                        for (int64_t i = 0; i < count; ++i)
                                          elements[static_cast<size_t>(in_box + i)] = in_whole + i;
                                      });
  EXPECT_EQ(found, box.elements());
  return elements;
}

TEST(TensorBox, ARangeIsBoxesOfConsecutiveElements) {
  for (const Shape& shape :
       std::vector<Shape>{{}, {1}, {7}, {3, 4}, {1, 5}, {5, 1}, {2, 3, 4}, {2, 1, 3, 2}}) {
    const int64_t n = num_elements(shape);
    for (int64_t first = 0; first <= n; ++first) {
      for (int64_t count = 0; first + count <= n; ++count) {
        int64_t next = first;
        std::vector<TensorBox> boxes = boxes_of_range(shape, first, count);
        for (const TensorBox& box : boxes) {
          EXPECT_TRUE(is_inside(box, shape));
          for (int64_t element : elements_of(box, shape)) EXPECT_EQ(element, next++);
        }
        EXPECT_EQ(next, first + count) << to_string(shape) << " " << first;
        EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
      }
    }
  }
}

TEST(TensorBox, CommonElementsOfAnyTwoBoxes) {
  const Shape shape{3, 4, 2};
  std::vector<TensorBox> boxes;
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 4; ++b)
      for (int64_t c = 0; c < 2; ++c)
        for (int64_t x = 1; x <= 3 - a; ++x)
          for (int64_t y = 1; y <= 4 - b; ++y)
            for (int64_t z = 1; z <= 2 - c; ++z) boxes.push_back({{a, b, c}, {x, y, z}});
  for (const TensorBox& one : boxes) {
    std::vector<int64_t> ones = elements_of(one, shape);
    for (const TensorBox& other : boxes) {
      std::vector<int64_t> others = elements_of(other, shape), seen;
      int64_t common = 0;
      for (int64_t e : ones) common += std::ranges::count(others, e);
      int64_t said = for_each_common_run(one, other, [&](int64_t i, int64_t k, int64_t count) {
        for (; count-- > 0; ++i, ++k) {
          ASSERT_EQ(ones[static_cast<size_t>(i)], others[static_cast<size_t>(k)]);
          seen.push_back(i);
        }
      });
      ASSERT_EQ(said, common);
      ASSERT_EQ(common_elements(one, other), common);
      ASSERT_EQ(std::ssize(seen), common);
      ASSERT_TRUE(std::ranges::is_sorted(seen));
    }
  }
}

TEST(TensorBox, FindsBoxesThatOverlap) {
  const Shape shape{3, 2, 2};
  std::vector<TensorBox> boxes;
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t x = 0; x <= 3 - a; ++x)
        for (int64_t y = 1; y <= 2 - b; ++y) boxes.push_back({{a, b, b}, {x, y, y}});
  auto in_common = [&](size_t i, size_t k) {
    return for_each_common_run(boxes[i], boxes[k], [](int64_t, int64_t, int64_t) {}) > 0;
  };
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t k = 0; k < boxes.size(); ++k) {
      if (i == k) continue;
      EXPECT_EQ(find_overlap(std::vector{boxes[i], boxes[k]}).has_value(), in_common(i, k));
    }
  }
  for (int seed = 0; seed < 300; ++seed) {
    std::vector<TensorBox> some;
    std::vector<size_t> chosen;
    for (uint64_t i = 0; i < 4; ++i)
      chosen.push_back(random_below(static_cast<uint64_t>(seed), 0, i, boxes.size()));
    bool any = false;
    for (size_t i = 0; i < chosen.size(); ++i) {
      some.push_back(boxes[chosen[i]]);
      for (size_t k = 0; k < i; ++k) any |= in_common(chosen[i], chosen[k]);
    }
    auto found = find_overlap(some);
    ASSERT_EQ(found.has_value(), any);
    if (found) {
      EXPECT_TRUE(in_common(chosen[found->first], chosen[found->second]));
    }
  }
  EXPECT_EQ(find_overlap(std::vector<TensorBox>{}), std::nullopt);
  EXPECT_TRUE(find_overlap(std::vector<TensorBox>{{}, {}}).has_value());  // of a scalar
  EXPECT_EQ(find_overlap(boxes_of_range({5, 7, 3}, 0, 105)), std::nullopt);
}

TEST(TensorBox, SaysItsRanges) {
  EXPECT_EQ(to_string(TensorBox{{2, 0}, {3, 64}}), "[2:5, 0:64]");
  EXPECT_FALSE(is_inside({{2}, {3}}, {4}));
  EXPECT_FALSE(is_inside({{2}, {3}}, {5, 1}));
  EXPECT_TRUE(is_inside({{2}, {3}}, {5}));
  EXPECT_FALSE(is_inside({{INT64_MAX}, {INT64_MAX}}, {5}));
}

bool tile(const Shape& shape, const std::vector<TensorBox>& boxes) {
  return boxes_tile(shape, boxes.size(), [&](size_t i) -> const TensorBox& { return boxes[i]; });
}

// Cuts of cuts, then every way to spoil them by moving one box: against counting.
TEST(BoxesTile, FindsWhetherEveryElementIsInOneBox) {
  const Shape shape{5, 4, 3};
  uint64_t draws = 0;
  auto draw = [&](int64_t below) {
    return static_cast<int64_t>(philox(1, 2, draws++)[0] % static_cast<uint32_t>(below));
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorBox> boxes{whole_box(shape)};
    for (int64_t cuts = draw(9); cuts > 0; --cuts) {
      TensorBox& box = boxes[static_cast<size_t>(draw(std::ssize(boxes)))];
      const auto d = static_cast<size_t>(draw(3));
      if (box.shape[d] < 2) continue;
      const int64_t at = 1 + draw(box.shape[d] - 1);
      TensorBox rest = box;
      rest.begin[d] += at;
      rest.shape[d] -= at;
      box.shape[d] = at;
      boxes.push_back(rest);
    }
    EXPECT_TRUE(tile(shape, boxes));
    TensorBox& moved = boxes[static_cast<size_t>(draw(std::ssize(boxes)))];
    for (size_t d = 0; d < 3; ++d) moved.begin[d] = draw(shape[d] - moved.shape[d] + 1);
    std::vector<int> count(60);
    for (const TensorBox& box : boxes)
      for (int64_t e : elements_of(box, shape)) ++count[static_cast<size_t>(e)];
    EXPECT_EQ(tile(shape, boxes), std::ranges::all_of(count, [](int n) { return n == 1; }));
  }
}

TEST(BoxesTile, KnowsScalarsAndWhatIsEmpty) {
  EXPECT_TRUE(tile({}, {{{}, {}}}));
  EXPECT_FALSE(tile({}, {}));
  EXPECT_FALSE(tile({}, {{{}, {}}, {{}, {}}}));
  EXPECT_TRUE(tile({0, 3}, {}));
  EXPECT_FALSE(tile({2}, {}));
  std::vector<TensorBox> four;
  for (int64_t i = 0; i < 16; ++i)
    four.push_back({{i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3}, {1, 1, 1, 1}});
  EXPECT_THROW(tile({2, 2, 2, 2}, four), UserError);
}

// Every box reaches over all rows, or all columns: comparing pairs would take hours.
TEST(BoxesTile, TakesTheTimeOfSorting) {
  constexpr int64_t kRows = 1000, kColumns = 300;
  std::vector<TensorBox> boxes;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c) boxes.push_back({{r * 3, c * 2}, {3, 2}});
  EXPECT_TRUE(tile({kRows * 3, kColumns * 2}, boxes));
  boxes[77777].begin[1] -= 1;
  EXPECT_FALSE(tile({kRows * 3, kColumns * 2}, boxes));
  boxes.clear();
  for (int64_t c = 0; c < kRows * kColumns; ++c) boxes.push_back({{0, c}, {7, 1}});
  EXPECT_TRUE(tile({7, kRows * kColumns}, boxes));
}

}  // namespace
}  // namespace tessera
