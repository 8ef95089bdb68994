#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// From the bytes of tokens to text that can be shown while it grows. A character in UTF-8 may be
// cut between tokens: it is given out when it is whole. Bytes that belong to no character become
// U+FFFD, one for each maximal part of one (Unicode 16.0, section 3.9, as most decoders do). A text
// that could be the beginning of a stop text is held back until it is certain.
class TextOutput {
 public:
  // Stop texts are not empty.
  explicit TextOutput(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  // What can be shown now. Nothing after stopped().
  std::string add(std::string_view bytes);
  // What was held back, at the end.
  std::string finish();
  // A stop text appeared: it and all behind it is dropped.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
