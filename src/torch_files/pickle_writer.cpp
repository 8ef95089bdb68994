#include "torch_files/pickle_writer.h"

#include <bit>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

}  // namespace

PickleWriter::PickleWriter(Sink sink) : sink_(std::move(sink)) { put("\x80\x02"); }

void PickleWriter::put(char opcode) { put(std::string_view(&opcode, 1)); }

void PickleWriter::put(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() < kBufferBytes) return;
  sink_(buffer_);
  buffer_.clear();
}

template <class T>
void PickleWriter::put_number(T value) {
  put(std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value <= UINT8_MAX) {
    put('K');
    put_number(static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= UINT16_MAX) {
    put('M');
    put_number(static_cast<uint16_t>(value));
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    put('J');
    put_number(static_cast<int32_t>(value));
  } else {
    put("\x8a\x08");
    put_number(value);
  }
}

void PickleWriter::number(double value) {
  put('G');
  put_number(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::text(std::string_view value) {
  TESSERA_CHECK(value.size() <= UINT32_MAX);
  put('X');
  put_number(static_cast<uint32_t>(value.size()));
  put(value);
}

bool PickleWriter::recall(const std::string& key) {
  auto known = known_.find(key);
  if (known == known_.end()) return false;
  put('j');
  put_number(known->second);
  return true;
}

void PickleWriter::remember(const std::string& key) {
  const auto number = static_cast<uint32_t>(known_.size());
  known_.emplace(key, number);
  put('r');
  put_number(number);
}

void PickleWriter::name(std::string_view value) {
  const std::string key = cat("text ", value);
  if (recall(key)) return;
  text(value);
  remember(key);
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  const std::string key = cat("global ", module, "\n", name);
  if (recall(key)) return;
  put(cat("c", module, "\n", name, "\n"));
  remember(key);
}

void PickleWriter::finish() {
  put('.');
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace tessera
