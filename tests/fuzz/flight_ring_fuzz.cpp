#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "flight/postmortem.h"
#include "tests/fuzz/memory_source.h"

// Any bytes as the rings of two ranks, their texts and a report: refused, or a page. The first two
// bytes say where the texts begin, from the end, in units of 16.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size < 2) return 0;
  size_t texts = (size_t{data[0]} + 256 * size_t{data[1]}) * 16;
  const std::string all(reinterpret_cast<const char*>(data + 2), size - 2);
  texts = texts < all.size() ? texts : all.size();
  const MemorySource ring(all.substr(0, all.size() - texts)), lines(all.substr(all.size() - texts));
  read_report(all);
  try {
    FlightDirectory directory;
    directory.ranks.push_back(read_ring(ring, &lines));
    directory.ranks.push_back(directory.ranks[0]);
    ++directory.ranks[1].rank;
    if (!directory.ranks[1].meetings.empty()) --directory.ranks[1].meetings[0].begun;
    const Postmortem postmortem = postmortem_of(directory, 1.7e9);
    postmortem_text(postmortem);
    postmortem_json(postmortem);
  } catch (const UserError&) {
  }
  return 0;
}
