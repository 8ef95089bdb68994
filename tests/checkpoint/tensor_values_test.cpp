#include "checkpoint/tensor_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/element_types.h"
#include "base/random.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A checkpoint of one tensor `w`, stored in these boxes.
std::unique_ptr<CheckpointReader> stored(const std::filesystem::path& directory, DType dtype,
                                         const Shape& shape, const std::vector<float>& values,
                                         const std::vector<TensorBox>& boxes) {
  const auto size = static_cast<size_t>(size_of(dtype));
  std::vector<std::vector<std::byte>> contents;
  std::vector<StateBox> state;
  for (const TensorBox& box : boxes) {
    std::vector<float> part(static_cast<size_t>(box.elements()));
    for_each_common_run(whole_box(shape), box, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        part[static_cast<size_t>(to + i)] = values[static_cast<size_t>(from + i)];
    });
    from_f32(part, dtype, contents.emplace_back(part.size() * size).data());
  }
  for (size_t i = 0; i < boxes.size(); ++i)
    state.push_back({"w", TensorRole::kWeight, dtype, shape, boxes[i], contents[i].data()});
  return std::make_unique<CheckpointReader>(save_boxes(directory, "llama", 1, state));
}

TEST(TensorValues, AreThoseOfAllBoxes) {
  ScratchDirectory scratch;
  const Shape shape{701, 1003};
  std::vector<float> values(701 * 1003);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = random_normal(3, 0, i) + 0.5f;
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
  }
  values[7] = kNan;
  values[702'000] = -kInfinity;
  sum = squares = 0;
  for (float x : values) {
    if (!std::isfinite(x)) continue;
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  for (const auto& boxes : {std::vector{whole_box(shape)},
                            std::vector<TensorBox>{{{0, 0}, {300, 1003}}, {{300, 0}, {401, 1003}}},
                            std::vector<TensorBox>{{{0, 0}, {701, 2}}, {{0, 2}, {701, 1001}}}}) {
    auto reader = stored(scratch.path(), DType::kF32, shape, values, boxes);
    TensorStatistics s = statistics_of(*reader, *reader->find("w"));
    EXPECT_EQ(s.elements, 701 * 1003);
    EXPECT_EQ(s.non_finite, 2);
    EXPECT_NEAR(s.mean, sum / (701 * 1003 - 2), 1e-12);
    EXPECT_NEAR(s.norm, std::sqrt(squares), 1e-9);
    float least = kInfinity, largest = -kInfinity;
    for (float x : values) {
      if (!std::isfinite(x)) continue;
      least = std::min(least, x);
      largest = std::max(largest, x);
    }
    EXPECT_EQ(s.minimum, least);
    EXPECT_EQ(s.maximum, largest);
  }
}

TEST(TensorValues, OfNoFiniteElement) {
  ScratchDirectory scratch;
  auto reader = stored(scratch.path(), DType::kBF16, {2}, {kNan, kInfinity}, {whole_box({2})});
  TensorStatistics s = statistics_of(*reader, *reader->find("w"));
  EXPECT_EQ(s.non_finite, 2);
  EXPECT_TRUE(std::isnan(s.minimum) && std::isnan(s.maximum) && std::isnan(s.mean) &&
              std::isnan(s.norm));
}

TEST(TensorValues, DifferencesDoNotDependOnBoxes) {
  ScratchDirectory scratch;
  const Shape shape{5, 7};
  std::vector<float> values(35), changed;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 3;
  changed = values;
  changed[11] = 8.5f;   // was 8
  changed[34] = 32.0f;  // was 31
  changed[0] = -2.0f;   // was -3
  const std::vector<std::vector<TensorBox>> meshes{
      {whole_box(shape)},
      boxes_of_range(shape, 0, 35),
      {{{0, 0}, {5, 3}}, {{0, 3}, {2, 4}}, {{2, 3}, {3, 4}}},
      {{{3, 0}, {2, 7}}, {{0, 0}, {3, 7}}}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    for (size_t j = 0; j < meshes.size(); ++j) {
      auto a = stored(scratch / "a", DType::kF32, shape, values, meshes[i]);
      auto same = stored(scratch / "same", DType::kF32, shape, values, meshes[j]);
      auto b = stored(scratch / "b", DType::kF32, shape, changed, meshes[j]);
      TensorDifference none = difference_of(*a, *a->find("w"), *same, *same->find("w"));
      EXPECT_EQ(none.elements, 35);
      EXPECT_EQ(none.different, 0);
      TensorDifference d = difference_of(*a, *a->find("w"), *b, *b->find("w"));
      EXPECT_EQ(d.elements, 35);
      EXPECT_EQ(d.different, 3);
      EXPECT_EQ(d.non_finite, 0);
      EXPECT_EQ(d.absolute, 1);
      EXPECT_DOUBLE_EQ(d.relative, 1.0 / 3);
    }
  }
}

TEST(TensorValues, DifferencesOfWhatIsNoNumber) {
  ScratchDirectory scratch;
  auto difference = [&](const std::vector<float>& a, const std::vector<float>& b,
                        DType of_b = DType::kF32) {
    const Shape shape{static_cast<int64_t>(a.size())};
    auto one = stored(scratch / "a", DType::kF32, shape, a, {whole_box(shape)});
    auto two = stored(scratch / "b", of_b, shape, b, {whole_box(shape)});
    return difference_of(*one, *one->find("w"), *two, *two->find("w"));
  };
  TensorDifference d = difference({kNan, kInfinity, 1, 0.f}, {kNan, kInfinity, kNan, -0.f});
  EXPECT_EQ(d.different, 2);
  EXPECT_EQ(d.non_finite, 1);
  EXPECT_EQ(d.absolute, 0);
  EXPECT_EQ(d.relative, 0);
  // Of another type by their values: 0.1 is no bf16.
  d = difference({1.5f, kNan, 0.1f}, {1.5f, kNan, 0.1f}, DType::kBF16);
  EXPECT_EQ(d.different, 1);
  EXPECT_EQ(d.non_finite, 0);
  EXPECT_NEAR(d.absolute, std::abs(0.1 - 0.10009765625), 1e-8);
}

TEST(TensorValues, OfCounters) {
  ScratchDirectory scratch;
  CheckpointReader a(save(scratch / "a", 5)), b(save(scratch / "b", 9));
  EXPECT_EQ(statistics_of(a, *a.find("step")).mean, 5);
  TensorDifference d = difference_of(a, *a.find("step"), b, *b.find("step"));
  EXPECT_EQ(d.different, 1);
  EXPECT_EQ(d.absolute, 4);
}

}  // namespace
}  // namespace tessera
