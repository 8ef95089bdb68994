#include "base/clock.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/text.h"

namespace tessera {

double monotonic_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

int64_t monotonic_nanoseconds() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

double RunningTime::seconds() {
  const double now = monotonic_seconds();
  seconds_ += std::min(now - std::exchange(before_, now), longest_);
  return seconds_;
}

std::string utc_time() {
  using namespace std::chrono;
  using namespace std::chrono_literals;
  auto now = floor<milliseconds>(system_clock::now());
  std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  auto fraction = static_cast<int>((now.time_since_epoch() % 1000ms).count());
  return format("%s.%03dZ", std::string(text, size).c_str(), fraction);
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
