#include "runtime/state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

void State::declare(const std::string& slot, const TensorType& type) {
  auto [known, added] = types_.emplace(slot, type);
  if (added) return allocate(slot, type.bytes());
  TESSERA_CHECK(known->second == type, cat("state slot ", slot, " is ", to_string(known->second),
                                           ", a program wants ", to_string(type)));
}

const TensorType& State::type(const std::string& slot) const {
  auto found = types_.find(slot);
  TESSERA_CHECK(found != types_.end(), cat("no state slot '", slot, "'"));
  return found->second;
}

std::vector<std::string> State::slots() const {
  std::vector<std::string> names;
  for (const auto& [slot, type] : types_) names.push_back(slot);
  return names;
}

int64_t State::bytes() const {
  int64_t bytes = 0;
  for (const auto& [slot, type] : types_) bytes += type.bytes();
  return bytes;
}

void State::require(const std::string& slot, DType dtype) const {
  const TensorType& own = type(slot);
  TESSERA_CHECK(own.dtype == dtype, cat("state slot ", slot, " is ", to_string(own),
                                        ", it is accessed as ", name(dtype)));
}

void State::require_inside(const std::string& slot, int64_t offset, size_t bytes) const {
  const TensorType& own = type(slot);
  TESSERA_CHECK(
      offset >= 0 && offset <= own.bytes() && static_cast<int64_t>(bytes) <= own.bytes() - offset,
      cat("state slot ", slot, " is ", to_string(own), ", ", bytes, " bytes at ", offset,
          " are accessed"));
}

void State::read_bytes(const std::string& slot, int64_t offset, std::span<std::byte> to) const {
  require_inside(slot, offset, to.size());
  if (!to.empty()) copy_out(slot, offset, to);
}

void State::write_bytes(const std::string& slot, int64_t offset, std::span<const std::byte> from) {
  require_inside(slot, offset, from.size());
  if (!from.empty()) copy_in(slot, offset, from);
}

void State::write_rounded(const std::string& slot, int64_t first, std::span<const float> from) {
  if (type(slot).dtype != DType::kBF16) return write(slot, first, from);
  require_inside(slot, first * size_of(DType::kBF16), from.size() * sizeof(BF16));
  constexpr size_t kAtATime = 1 << 16;
  std::vector<BF16> rounded(std::min(from.size(), kAtATime));
  for (size_t i = 0; i < from.size(); i += kAtATime) {
    std::span<const float> part = from.subspan(i, std::min(kAtATime, from.size() - i));
    std::ranges::transform(part, rounded.begin(), [](float x) { return BF16(x); });
    write(slot, first + static_cast<int64_t>(i),
          std::span<const BF16>(rounded.data(), part.size()));
  }
}

void State::read_as_f32(const std::string& slot, int64_t first, std::span<float> to) const {
  if (type(slot).dtype != DType::kBF16) return read(slot, first, to);
  constexpr size_t kAtATime = 1 << 16;
  std::vector<BF16> stored(std::min(to.size(), kAtATime));
  for (size_t i = 0; i < to.size(); i += kAtATime) {
    std::span<BF16> part(stored.data(), std::min(kAtATime, to.size() - i));
    read(slot, first + static_cast<int64_t>(i), part);
    std::ranges::transform(part, to.begin() + static_cast<int64_t>(i),
                           [](BF16 x) { return static_cast<float>(x); });
  }
}

std::byte* HostState::data(const std::string& slot) const {
  auto found = buffers_.find(slot);
  TESSERA_CHECK(found != buffers_.end(), cat("no state slot '", slot, "'"));
  return found->second.data();
}

void HostState::allocate(const std::string& slot, int64_t bytes) {
  buffers_.emplace(slot, HostBuffer(bytes));
}

void HostState::copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const {
  std::memcpy(to.data(), data(slot) + offset, to.size());
}

void HostState::copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) {
  std::memcpy(data(slot) + offset, from.data(), from.size());
}

}  // namespace tessera
