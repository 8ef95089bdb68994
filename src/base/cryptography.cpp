#include "base/cryptography.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/error.h"

namespace tessera {
namespace {

constexpr size_t kDigest = 32;

// Before the first use of the library: no file of this machine (openssl.cnf) says what it does.
void prepare_library() {
  static const bool prepared = ::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1;
  TESSERA_CHECK(prepared, "libcrypto");
}

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string sha256(std::string_view text) {
  prepare_library();
  std::string digest(kDigest, '\0');
  size_t size = 0;
  bool done = ::EVP_Q_digest(nullptr, "SHA256", nullptr, text.data(), text.size(), bytes_of(digest),
                             &size) == 1;
  TESSERA_CHECK(done && size == kDigest, "SHA-256");
  return digest;
}

DigestStream::DigestStream(Digest digest) : context_(nullptr) {
  prepare_library();
  auto* context = ::EVP_MD_CTX_new();
  context_ = context;
  const EVP_MD* kind = digest == Digest::kSha1 ? ::EVP_sha1() : ::EVP_sha256();
  TESSERA_CHECK(context && ::EVP_DigestInit_ex(context, kind, nullptr) == 1, "digest");
}

DigestStream::~DigestStream() { ::EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void DigestStream::add(std::string_view part) {
  auto* context = static_cast<EVP_MD_CTX*>(context_);
  TESSERA_CHECK(::EVP_DigestUpdate(context, part.data(), part.size()) == 1, "digest");
}

std::string DigestStream::finish() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  auto* context = static_cast<EVP_MD_CTX*>(context_);
  TESSERA_CHECK(::EVP_DigestFinal_ex(context, bytes_of(digest), &size) == 1, "digest");
  digest.resize(size);
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  prepare_library();
  std::string digest(kDigest, '\0');
  unsigned size = 0;
  bool done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(message),
                     message.size(), bytes_of(digest), &size) != nullptr;
  TESSERA_CHECK(done && size == kDigest, "HMAC");
  return digest;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string secret_random_bytes(size_t count) {
  prepare_library();
  std::string bytes(count, '\0');
  if (::RAND_priv_bytes(bytes_of(bytes), static_cast<int>(count)) != 1)
    throw DeviceError("the system has no random numbers for secrets");
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (char c : bytes) {
    text.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4]);
    text.push_back("0123456789abcdef"[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

}  // namespace tessera
