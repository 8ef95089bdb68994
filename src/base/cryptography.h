#pragma once
#include <string>
#include <string_view>

// By OpenSSL's libcrypto. Its first use in a process takes about 2 ms.
namespace tessera {

// SHA-256 (FIPS 180-4) of a text: 32 bytes.
std::string sha256(std::string_view text);

enum class Digest { kSha1, kSha256 };

// The same of what comes in parts; SHA-1 (20 bytes) for the hashes of git, which are no protection.
class DigestStream {
 public:
  explicit DigestStream(Digest digest);
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;
  void add(std::string_view part);
  std::string finish();  // once, at the end

 private:
  void* context_;
};

// HMAC-SHA-256 (RFC 2104): 32 bytes that only a holder of the key can compute.
std::string hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that does not depend on where the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Unpredictable bytes, from libcrypto's generator for secrets. DeviceError if it has no seed.
std::string secret_random_bytes(size_t count);

// Two lower-case hexadecimal digits a byte.
std::string hex(std::string_view bytes);

}  // namespace tessera
