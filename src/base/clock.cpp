#include "base/clock.h"

#include <chrono>
#include <cstdio>
#include <cstring>

namespace tessera {

double monotonic_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

namespace {
int64_t status_kib(const char* key) {
  std::FILE* f = std::fopen("/proc/self/status", "r");
  if (!f) return 0;
  char line[256];
  long long value = 0;
  while (std::fgets(line, sizeof line, f)) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) {
      if (std::sscanf(line + std::strlen(key), " %lld", &value) != 1) value = 0;
      break;
    }
  }
  std::fclose(f);
  return value;
}
}  // namespace

int64_t peak_resident_bytes() { return status_kib("VmHWM:") * 1024; }
int64_t resident_bytes() { return status_kib("VmRSS:") * 1024; }

}  // namespace tessera
