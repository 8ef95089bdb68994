#pragma once
#include <string>

#include "observe/reports.h"

namespace tessera {

// The lines of --enable_memory_profiling, as the training scripts print them from which other
// programs know them: numbers in GB of 2^30 bytes, the version in parentheses is tessera's.

// "[GPU MEMORY]@0004 (torch, rank, device) = (0.1.0, 0, cpu), (alloc, max_alloc, cache, max_cache)
//  = ( 0.0123,  0.0456,  0.0789,  0.0789) GB. [After forward]"
std::string device_memory_line(const MemoryReport& report);
// "[CPU MEMORY]@0004 (torch, rank, device) = (0.1.0, 0, cpu), (torch tensor, mem, change since last
//  measurement, base) = ( 0.0789,  0.1234,  0.0012,  0.0345): After forward"
std::string host_memory_line(const MemoryReport& report);

}  // namespace tessera
