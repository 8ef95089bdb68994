#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A document as tokens, and which of them are learned: empty where all are.
struct TokenDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // as many as ids, 0 or 1
};

// Where a lane is: the files, what is buffered, what is left of a document. Copies share what they
// hold, which never changes.
struct LaneState {
  struct Source {
    int64_t epoch = 0, part = 0;                  // LaneFiles::part of the next record
    int64_t record = 0;                           // of that file
    std::shared_ptr<const std::string> position;  // of its reader; null: at the beginning
    int64_t documents = 0;                        // read of this epoch so far ...
    int64_t read_tokens = 0;                      // ... and their tokens
    uint64_t draws = 0;                           // from the buffer
    int64_t tokens = 0;                           // given so far
    bool ended = false;
    std::vector<std::shared_ptr<const TokenDocument>> buffer;
  };
  std::vector<Source> sources;
  std::shared_ptr<const TokenDocument> document;  // given in part
  uint64_t next = 0;                              // its next token
  // Where documents are joined: the last target of the window before, the next one's first input.
  std::optional<int32_t> last;
  bool ended = false;

  int64_t epoch() const { return sources.empty() ? 0 : sources[0].epoch; }
};

// Bytes to keep, and back. UserError, naming `name`, where they are damaged, or not of so many
// sources.
std::string to_bytes(const LaneState& state);
LaneState lane_state_from_bytes(std::string_view bytes, size_t sources, const std::string& name);

}  // namespace tessera
