#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// XXH3, 64 bits.
uint64_t hash_bytes(const void* data, size_t size);
inline uint64_t hash_text(std::string_view text) { return hash_bytes(text.data(), text.size()); }

// Order-dependent mixing of two hashes.
inline uint64_t hash_combine(uint64_t a, uint64_t b) {
  return (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
}

// Streaming XXH3 for data that does not fit in memory at once.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(const void* data, size_t size);
  uint64_t digest() const;

 private:
  void* state_;
};

// 16 lower-case hexadecimal digits.
std::string hex(uint64_t hash);

}  // namespace tessera
