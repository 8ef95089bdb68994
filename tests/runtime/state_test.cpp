#include "runtime/state.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

TEST(State, KeepsSlotsOfOneType) {
  HostState state;
  state.declare("weight", {{3}, DType::kF32});
  EXPECT_TRUE(state.contains("weight"));
  EXPECT_EQ(state.as<float>("weight")[2], 0.0f);
  state.as<float>("weight")[2] = 5;
  state.declare("weight", {{3}, DType::kF32});
  EXPECT_EQ(state.as<float>("weight")[2], 5.0f) << "the same slot";
  state.declare("step", {{}, DType::kI64});
  EXPECT_EQ(state.slots(), (std::vector<std::string>{"step", "weight"}));
  EXPECT_EQ(state.bytes(), 20);
}

TEST(State, RefusesAnotherType) {
  HostState state;
  state.declare("weight", {{3}, DType::kF32});
  for (const TensorType& other : {TensorType{{4}, DType::kF32}, TensorType{{3}, DType::kBF16},
                                  TensorType{{3}, DType::kF32, {1}}}) {
    expect_contains(message_of<InternalError>([&] { state.declare("weight", other); }),
                    cat("state slot weight is f32[3], a program wants ", to_string(other)));
  }
  EXPECT_THROW(state.data("bias"), InternalError);
}

TEST(State, IsAccessedAsWhatItIs) {
  HostState state;
  state.declare("weight", {{3}, DType::kF32});
  state.declare("half", {{3}, DType::kBF16});
  state.declare("step", {{}, DType::kI64});
  auto address = [&](const char* slot) { return static_cast<void*>(state.data(slot)); };
  EXPECT_EQ(state.as<float>("weight"), address("weight"));
  EXPECT_EQ(state.as<BF16>("half"), address("half"));
  EXPECT_EQ(state.as<int64_t>("step"), address("step"));
  expect_contains(message_of<InternalError>([&] { state.as<float>("half"); }),
                  "state slot half is bf16[3], it is accessed as f32");
  expect_contains(message_of<InternalError>([&] { state.as<int32_t>("step"); }),
                  "state slot step is i64[], it is accessed as i32");
  EXPECT_THROW(state.as<double>("weight"), InternalError);
  EXPECT_THROW(state.as<float>("bias"), InternalError);
}

TEST(State, RoundsToSlotsOfBf16) {
  constexpr int64_t kCount = (1 << 16) + 5;  // more than are rounded at a time
  HostState state;
  state.declare("master", {{kCount + 1}, DType::kF32});
  state.declare("weight", {{kCount + 1}, DType::kBF16});
  state.declare("step", {{}, DType::kI64});
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1 + 0.001f * static_cast<float>(i % 999);
  for (const char* slot : {"master", "weight"}) state.write_rounded(slot, 1, values);
  EXPECT_EQ(state.as<float>("master")[0], 0.0f);
  EXPECT_EQ(state.as<BF16>("weight")[0].bits, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(state.as<float>("master")[i + 1], values[i]);
    ASSERT_EQ(state.as<BF16>("weight")[i + 1].bits, BF16(values[i]).bits);
  }
  EXPECT_THROW(state.write_rounded("weight", 2, values), InternalError);
  EXPECT_THROW(state.write_rounded("step", 0, std::span(values).first(1)), InternalError);
}

TEST(State, IsReadAndWrittenInPartsOfItsOwnElements) {
  HostState host;
  State& state = host;
  state.declare("weight", {{5}, DType::kF32});
  state.declare("step", {{}, DType::kI64});
  const std::vector<float> given{1, 2, 3};
  state.write("weight", 1, std::span(given));
  std::vector<float> all(5), part(2);
  state.read("weight", 0, std::span(all));
  EXPECT_EQ(all, (std::vector<float>{0, 1, 2, 3, 0}));
  state.read("weight", 2, std::span(part));
  EXPECT_EQ(part, (std::vector<float>{2, 3}));
  state.set_scalar("step", int64_t{7});
  EXPECT_EQ(state.scalar<int64_t>("step"), 7);
  expect_contains(message_of<InternalError>([&] { state.read("weight", 4, std::span(part)); }),
                  "state slot weight is f32[5], 8 bytes at 16 are accessed");
  EXPECT_THROW(state.read("weight", -1, std::span(part)), InternalError);
  EXPECT_THROW(state.write("weight", 3, std::span(given)), InternalError);
  expect_contains(message_of<InternalError>([&] { state.scalar<float>("step"); }),
                  "state slot step is i64[], it is accessed as f32");
  EXPECT_THROW(state.set_scalar("bias", 1.0f), InternalError);
  state.read("weight", 0, std::span(all));
  EXPECT_EQ(all, (std::vector<float>{0, 1, 2, 3, 0})) << "a refused access touches nothing";
}

}  // namespace
}  // namespace tessera
