#include "runtime/memory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

TEST(HostBuffer, IsAlignedAndZeroed) {
  HostBuffer buffer(3 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_EQ(buffer.bytes(), 3 << 20);
  for (int64_t i = 0; i < buffer.bytes(); i += 4095) EXPECT_EQ(buffer.data()[i], std::byte{0});
}

TEST(HostBuffer, MovesItsMemory) {
  HostBuffer a(100);
  std::byte* data = a.data();
  HostBuffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: a moved-from buffer is empty
  HostBuffer c(200);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.bytes(), 100);
}

TEST(HostBuffer, OfNothingIsEmpty) {
  EXPECT_EQ(HostBuffer(0).bytes(), 0);
  EXPECT_EQ(HostBuffer().data(), nullptr);
}

TEST(HostBuffer, SaysHowMuchIsNotThere) {
  std::string message = message_of<DeviceError>([] { HostBuffer buffer(int64_t{1} << 52); });
  EXPECT_TRUE(message.starts_with("out of memory: cannot allocate ")) << message;
}

TEST(State, KeepsSlotsOfOneType) {
  State state;
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
  State state;
  state.declare("weight", {{3}, DType::kF32});
  for (const TensorType& other : {TensorType{{4}, DType::kF32}, TensorType{{3}, DType::kBF16},
                                  TensorType{{3}, DType::kF32, {1}}}) {
    expect_contains(message_of<InternalError>([&] { state.declare("weight", other); }),
                    cat("state slot weight is f32[3], a program wants ", to_string(other)));
  }
  EXPECT_THROW(state.data("bias"), InternalError);
}

TEST(State, IsAccessedAsWhatItIs) {
  State state;
  state.declare("weight", {{3}, DType::kF32});
  state.declare("half", {{3}, DType::kBF16});
  state.declare("step", {{}, DType::kI64});
  EXPECT_EQ(state.as<float>("weight"), state.data("weight"));
  EXPECT_EQ(state.as<BF16>("half"), state.data("half"));
  EXPECT_EQ(state.as<int64_t>("step"), state.data("step"));
  expect_contains(message_of<InternalError>([&] { state.as<float>("half"); }),
                  "state slot half is bf16[3], it is accessed as f32");
  expect_contains(message_of<InternalError>([&] { state.as<int32_t>("step"); }),
                  "state slot step is i64[], it is accessed as i32");
  EXPECT_THROW(state.as<double>("weight"), InternalError);
  EXPECT_THROW(state.as<float>("bias"), InternalError);
}

}  // namespace
}  // namespace tessera
