#include "observe/memory_lines.h"

#include "base/text.h"

namespace tessera {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

std::string beginning(const char* kind, const MemoryReport& r) {
  return format("[%s MEMORY]@%04lld (torch, rank, device) = (%s, %d, %s), ", kind,
                static_cast<long long>(r.step), TESSERA_VERSION, r.rank, r.device.c_str());
}

}  // namespace

std::string device_memory_line(const MemoryReport& r) {
  return beginning("GPU", r) +
         format("(alloc, max_alloc, cache, max_cache) = (%7.4f, %7.4f, %7.4f, %7.4f) GB. [%-10s]",
                gib(r.allocated), gib(r.peak_allocated), gib(r.reserved), gib(r.reserved),
                r.tag.c_str());
}

std::string host_memory_line(const MemoryReport& r) {
  return beginning("CPU", r) +
         format(
             "(torch tensor, mem, change since last measurement, base) = (%7.4f, %7.4f, %7.4f, "
             "%7.4f): %s",
             gib(r.host_tensors), gib(r.resident), gib(r.resident_change), gib(r.first_resident),
             r.tag.c_str());
}

}  // namespace tessera
