#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/stream_reader.h"

// Where a stream is, as a checkpoint keeps it. What is read is written again as the same bytes, and
// a lane can be made of it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  // A lane, one of an earlier version, or a stream.
  const char kind = "lsr"[data[0] % 3];
  const bool lane = kind != 's';
  // The hash at the end would stop everything else.
  std::string bytes = cat("TSRP\x01", std::string(1, kind));
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const uint64_t hash = hash_text(bytes);
  bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  StreamSettings settings;
  settings.sources.resize(2);
  for (auto& source : settings.sources) source.reading.vocab_size = 1000;
  settings.context = 4;
  try {
    if (!lane) {
      const StreamState state = stream_state_from_bytes(bytes, 2, "fuzz");
      if (stream_state_from_bytes(to_bytes(state), 2, "fuzz").lanes.size() != state.lanes.size())
        std::abort();
      return 0;
    }
    const LaneState state = lane_state_from_bytes(bytes, 2, "fuzz");
    if (kind == 'r' && to_bytes(state) != bytes) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
