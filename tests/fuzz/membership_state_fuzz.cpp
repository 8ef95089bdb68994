#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launch/membership_state.h"

// Any bytes as the text that nodes share: refused, or a state that says the same when it is written
// and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::MembershipState;
  auto state = MembershipState::from_text({reinterpret_cast<const char*>(data), size});
  if (!state) return 0;
  if (state->min_nodes < 1 || state->max_nodes < state->min_nodes) std::abort();
  std::string text = state->to_text();
  auto again = MembershipState::from_text(text);
  if (!again || again->to_text() != text) std::abort();
  return 0;
}
