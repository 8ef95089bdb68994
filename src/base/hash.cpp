#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"

namespace tessera {

uint64_t hash_bytes(const void* data, size_t size) { return XXH3_64bits(data, size); }

Hasher::Hasher() : state_(XXH3_createState()) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}
Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Hasher::add(const void* data, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}
uint64_t Hasher::digest() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_));
}

std::string hex(uint64_t hash) { return format("%016llx", static_cast<unsigned long long>(hash)); }

}  // namespace tessera
