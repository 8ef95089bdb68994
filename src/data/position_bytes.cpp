#include "data/position_bytes.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "positions are little-endian");

constexpr std::string_view kMagic = "TSRP";
constexpr char kVersion = 1;

}  // namespace

PositionWriter::PositionWriter(char kind) : bytes_(kMagic) {
  bytes_ += kVersion;
  bytes_ += kind;
}

void PositionWriter::add(uint64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PositionWriter::add(std::string_view bytes) {
  add(uint64_t{bytes.size()});
  bytes_ += bytes;
}

std::string PositionWriter::finish() {
  add(hash_text(bytes_));
  return std::move(bytes_);
}

bool is_of_kind(std::string_view position, char kind) {
  return position.size() > kMagic.size() + 1 && position[kMagic.size() + 1] == kind;
}

PositionReader::PositionReader(std::string_view position, char kind, std::string_view name)
    : left_(position), name_(name) {
  if (!position.starts_with(kMagic)) refuse("it is none");
  if (position.size() < kMagic.size() + 2 + sizeof(uint64_t)) refuse("it is cut short");
  if (position[kMagic.size()] != kVersion) refuse("another version of the program wrote it");
  uint64_t hash;
  std::memcpy(&hash, position.data() + position.size() - sizeof hash, sizeof hash);
  left_.remove_suffix(sizeof hash);
  if (hash != hash_text(left_)) refuse("it is damaged");
  if (!is_of_kind(left_, kind)) refuse("it is that of another kind of reader");
  left_.remove_prefix(kMagic.size() + 2);
}

uint64_t PositionReader::value(uint64_t limit) {
  uint64_t value;
  if (left_.size() < sizeof value) refuse("a value is missing");
  std::memcpy(&value, left_.data(), sizeof value);
  left_.remove_prefix(sizeof value);
  if (value > limit) refuse("a value is out of range");
  return value;
}

std::string_view PositionReader::bytes(size_t limit) {
  const auto size = static_cast<size_t>(value(limit));
  if (left_.size() < size) refuse("bytes are missing");
  std::string_view bytes = left_.substr(0, size);
  left_.remove_prefix(size);
  return bytes;
}

void PositionReader::end() {
  if (!left_.empty()) refuse("it holds more than a position");
}

void PositionReader::refuse(std::string_view why) const {
  throw UserError(cat("'", name_, "': cannot go on from the stored position: ", why,
                      "; begin anew, or give the data that it was stored for"));
}

}  // namespace tessera
