#include "access_cells.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tessera::simt {

Region::Region(const std::byte* begin_, size_t bytes_, std::string name_, bool shared_)
    : begin(begin_), bytes(bytes_), name(std::move(name_)), shared(shared_) {
  mapped_ = (bytes / kPageBytes + 1) * sizeof(Page);
  // Zeroes that take no memory until they are written.
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  pages_ = static_cast<Page*>(memory);
}
Region::~Region() {
  for (size_t n = 0; n < mapped_ / sizeof(Page); ++n) delete pages_[n].cells;
  munmap(pages_, mapped_);
}

PageCells& Region::cells(size_t number) {
  Page& page = pages_[number];
  if (!page.cells) {
    page.cells = new PageCells;
    for (Cell& cell : page.cells->cells) cell.flags = page.flags;
  }
  return *page.cells;
}

void Region::set_flag(size_t offset, size_t count, uint8_t flag, bool on) {
  const auto change = [&](uint8_t& flags) {
    flags = static_cast<uint8_t>(on ? flags | flag : flags & ~flag);
  };
  const size_t end = std::min(offset + count, bytes);
  while (offset < end) {
    const size_t number = offset / kPageBytes, first = offset % kPageBytes;
    const size_t to = std::min(kPageBytes, first + (end - offset));
    if (!pages_[number].cells && first == 0 && to == kPageBytes) {
      change(pages_[number].flags);
    } else {
      PageCells& page = cells(number);
      page.refine(first, to);
      for (size_t n = first >> page.shift; n < (to >> page.shift); ++n) change(page.cells[n].flags);
    }
    offset += to - first;
  }
}

bool Region::all_written(size_t offset, size_t count) {
  const size_t end = std::min(offset + count, bytes);
  while (offset < end) {
    const size_t number = offset / kPageBytes, first = offset % kPageBytes;
    const size_t to = std::min(kPageBytes, first + (end - offset));
    if (const PageCells* page = pages_[number].cells) {
      for (size_t n = first >> page->shift; n < ((to + page->granule - 1) >> page->shift); ++n) {
        if (!(page->cells[n].flags & kWritten)) return false;
      }
    } else if (!(pages_[number].flags & kWritten)) {
      return false;
    }
    offset += to - first;
  }
  return true;
}

}  // namespace tessera::simt
