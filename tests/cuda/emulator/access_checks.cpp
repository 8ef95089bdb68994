#include "access_checks.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "access_cells.h"
#include "block_runner.h"
#include "findings.h"

namespace tessera::simt {

bool checking = false;

namespace {

struct Range {
  const std::byte *begin = nullptr, *end = nullptr;
  bool has(const std::byte* at) const { return at >= begin && at < end; }
};

std::map<const std::byte*, std::unique_ptr<Region>> regions;  // by their beginning
Region* last = nullptr;
std::vector<std::pair<Region*, size_t>> touched_pages;  // of the launch
Range parameters, dynamic_shared_range, library;
Range static_shared;       // of the thread that launches
thread_local char anchor;  // in the same segment as what kernels declare __shared__
std::unique_ptr<Region> static_region, dynamic_region;
uint32_t launch_serial = 0, block_serial = 0, block_number = 0;

void find_library() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        Range whole, shared;
        for (int n = 0; n < info->dlpi_phnum; ++n) {
          const auto& part = info->dlpi_phdr[n];
          const auto* begin = reinterpret_cast<const std::byte*>(info->dlpi_addr + part.p_vaddr);
          if (part.p_type == PT_LOAD) {
            if (!whole.begin || begin < whole.begin) whole.begin = begin;
            whole.end = std::max(whole.end, begin + part.p_memsz);
          }
          if (part.p_type == PT_TLS && info->dlpi_tls_data) {
            shared.begin = static_cast<const std::byte*>(info->dlpi_tls_data);
            shared.end = shared.begin + part.p_memsz;
          }
        }
        if (!shared.has(reinterpret_cast<const std::byte*>(&anchor))) return 0;
        library = whole;
        static_shared = shared;
        return 1;
      },
      nullptr);
}

Region* region_of(const std::byte* at) {
  if (last && at >= last->begin && at < last->begin + last->bytes) return last;
  auto it = regions.upper_bound(at);
  if (it == regions.begin()) return nullptr;
  Region* region = std::prev(it)->second.get();
  if (at >= region->begin + region->bytes) return nullptr;
  return last = region;
}

// The buffer that ends less than 4 KiB before an address.
Region* region_ending_before(const std::byte* at) {
  const auto it = regions.upper_bound(at);
  if (it == regions.begin()) return nullptr;
  Region* region = std::prev(it)->second.get();
  return at - (region->begin + region->bytes) < 4096 ? region : nullptr;
}

std::string at_text(const void* place) {
  return place ? emulated_gpu::source_line(place) : "a matrix instruction";
}
void stop_with(const std::string& rule, const void* place) {
  kernel_finding(rule, at_text(place));
  stop_kernel();
}

// The region, or null if the access is none of our business or is one that ends the kernel.
Region* checked_region(const std::byte* at, size_t bytes, Access access, const void* place) {
  const Fiber& f = *running.fiber;
  if (at >= f.stack_begin && at < f.stack_end) return nullptr;
  if (static_shared.has(at)) return static_region.get();
  if (dynamic_shared_range.has(at)) {
    if (at + bytes <= dynamic_region->begin + dynamic_region->bytes) return dynamic_region.get();
    stop_with("access past the shared memory that the launch gives", place);
    return nullptr;
  }
  Region* region = region_of(at);
  if (!region) {
    if (parameters.has(at) || (library.has(at) && access == Access::kRead)) return nullptr;
    region = region_ending_before(at);
    stop_with(region ? "access past the end of " + region->name
                     : "access to memory that is in no buffer of the device",
              place);
    return nullptr;
  }
  if (region->freed) {
    stop_with("access to " + region->name + ", which is freed", place);
    return nullptr;
  }
  if (at + bytes > region->begin + region->bytes) {
    stop_with("access past the end of " + region->name, place);
    return nullptr;
  }
  return region;
}

const char* text_of_problem(unsigned problem) {
  if (problem & kTouchesPending) return "touches bytes that an asynchronous copy still writes";
  if (problem & kTouchesGuarded) return "touches guarded bytes";
  if (problem & kReadsUnwritten) return "reads what nobody has written";
  if (problem & kReadAfterWrite) return "race: reads what another thread writes";
  if (problem & kWriteAfterWrite) return "race: writes what another thread writes";
  return "race: writes what another thread reads";
}

// Calls `each(PageCells&, first cell, end)` for the cells of a range.
template <class Each>
void for_cells(Region& region, const std::byte* at, size_t bytes, Each each) {
  size_t offset = static_cast<size_t>(at - region.begin);
  const size_t end = offset + bytes;
  while (offset < end) {
    const size_t number = offset / kPageBytes, first = offset % kPageBytes;
    const size_t to = std::min(kPageBytes, first + (end - offset));
    PageCells& cells = region.cells(number);
    cells.refine(first, to);
    each(cells, number, first, to);
    offset += to - first;
  }
}

void check(Region& region, const std::byte* at, size_t bytes, Access access, bool asynchronous,
           const void* place) {
  const Fiber& f = *running.fiber;
  const Moment now{region.shared ? block_serial : launch_serial, block_number + 1,
                   static_cast<uint16_t>(f.index + 1), f.barriers, f.warp_barriers};
  unsigned problems = 0;
  for_cells(region, at, bytes, [&](PageCells& page, size_t number, size_t first, size_t to) {
    if (!region.shared) {
      if (page.launch != launch_serial) {
        page.begin_launch(launch_serial);
        touched_pages.emplace_back(&region, number);
      }
      if (access != Access::kWrite) set_bits(page.read, first, to);
      if (access != Access::kRead) set_bits(page.written, first, to);
    }
    for (size_t n = first >> page.shift; n < (to >> page.shift); ++n) {
      Cell& cell = page.cells[n];
      cell.begin(now.epoch, region.shared);
      problems |= cell.touch(now, access);
      if (asynchronous) cell.pending = now.thread;
    }
  });
  if (!problems) return;
  const std::string where = region.shared ? "shared memory" : region.name;
  for (unsigned bit = 1; bit < kNoMoreProblems; bit <<= 1) {
    if (!(problems & bit)) continue;
    kernel_finding(where + ": " + text_of_problem(bit), at_text(place));
  }
}

}  // namespace

void add_memory(const void* begin, size_t bytes, const std::string& name, bool written) {
  if (!checking) return;
  const auto* at = static_cast<const std::byte*>(begin);
  regions[at] = std::make_unique<Region>(at, bytes, name, false);
  if (written) set_written(begin, bytes);
}
void free_memory(const void* begin) {
  const auto it = regions.find(static_cast<const std::byte*>(begin));
  if (it != regions.end()) it->second->freed = true;
}
void forget_memory() {
  regions.clear();
  last = nullptr;
  touched_pages.clear();
}

static void set_flag(const void* begin, size_t bytes, uint8_t flag, bool on) {
  const auto* at = static_cast<const std::byte*>(begin);
  Region* region = checking ? region_of(at) : nullptr;
  if (region) region->set_flag(static_cast<size_t>(at - region->begin), bytes, flag, on);
}
void set_written(const void* begin, size_t bytes) { set_flag(begin, bytes, kWritten, true); }
void set_unwritten(const void* begin, size_t bytes) { set_flag(begin, bytes, kWritten, false); }
void guard_memory(const void* begin, size_t bytes, bool guarded) {
  set_flag(begin, bytes, kGuarded, guarded);
}
bool is_written(const void* begin, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(begin);
  Region* region = checking ? region_of(at) : nullptr;
  return !region || region->all_written(static_cast<size_t>(at - region->begin), bytes);
}
void copy_written(const void* to, const void* from, size_t bytes) {
  if (!checking || bytes == 0) return;
  if (is_written(from, bytes)) {
    set_written(to, bytes);
    return;
  }
  const auto *target = static_cast<const std::byte*>(to),
             *source = static_cast<const std::byte*>(from);
  Region* region = region_of(target);
  if (!region) return;
  const auto offset = static_cast<size_t>(target - region->begin);
  for (size_t n = 0; n < bytes; ++n) {
    region->set_flag(offset + n, 1, kWritten, is_written(source + n, 1));
  }
}

std::vector<Touched> take_touched() {
  std::sort(touched_pages.begin(), touched_pages.end(), [](const auto& a, const auto& b) {
    return a.first->begin + a.second * kPageBytes < b.first->begin + b.second * kPageBytes;
  });
  std::vector<Touched> result;
  const auto collect = [&](bool writes) {
    const size_t first = result.size();
    for (const auto& [region, number] : touched_pages) {
      const PageCells& page = region->cells(number);
      const std::byte* base = region->begin + number * kPageBytes;
      each_run_of_bits(writes ? page.written : page.read, [&](size_t from, size_t to) {
        if (result.size() > first && result.back().begin + result.back().bytes == base + from) {
          result.back().bytes += to - from;
        } else {
          result.push_back({base + from, to - from, writes});
        }
      });
    }
  };
  collect(false);
  collect(true);
  touched_pages.clear();
  return result;
}

void begin_launch(const std::byte* parameter_memory, size_t parameter_bytes) {
  launch_serial++;
  if (!checking) return;
  parameters = {parameter_memory, parameter_memory + parameter_bytes};
  find_library();
  if (!static_region || static_region->begin != static_shared.begin) {
    static_region = std::make_unique<Region>(
        static_shared.begin, static_cast<size_t>(static_shared.end - static_shared.begin),
        "shared memory", true);
  }
}
void begin_block(uint32_t number, const std::byte* dynamic_shared, size_t dynamic_bytes) {
  block_serial++;
  block_number = number;
  if (!checking) return;
  dynamic_shared_range = {dynamic_shared, dynamic_shared + (227 << 10)};
  if (!dynamic_region) {
    dynamic_region = std::make_unique<Region>(dynamic_shared, 227 << 10, "shared memory", true);
  }
  dynamic_region->bytes = dynamic_bytes;
}

void touch(const void* p, size_t bytes, Access access, const void* place) {
  if (!checking || !running.fiber) return;
  const auto* at = static_cast<const std::byte*>(p);
  if (Region* region = checked_region(at, bytes, access, place)) {
    check(*region, at, bytes, access, false, place);
  }
}
void begin_asynchronous(const void* shared, size_t bytes, const void* place) {
  if (!checking) return;
  const auto* at = static_cast<const std::byte*>(shared);
  Region* region = checked_region(at, bytes, Access::kWrite, place);
  if (!region || !region->shared) {
    stop_with("cp.async: the target is not shared memory", place);
    return;
  }
  check(*region, at, bytes, Access::kWrite, true, place);
}
void end_asynchronous(const void* shared, size_t bytes) {
  if (!checking) return;
  const auto* at = static_cast<const std::byte*>(shared);
  Region& region = static_shared.has(at) ? *static_region : *dynamic_region;
  for_cells(region, at, bytes, [](PageCells& page, size_t, size_t first, size_t to) {
    for (size_t n = first >> page.shift; n < (to >> page.shift); ++n) page.cells[n].pending = 0;
  });
  check(region, at, bytes, Access::kWrite, false, nullptr);
}

}  // namespace tessera::simt
