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

}  // namespace
}  // namespace tessera
