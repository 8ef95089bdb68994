#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// A fault that a run makes itself, for drills: one word of --inject, ACTION@KEY=VALUE,KEY=VALUE...
// docs/guards.md says what each does and what should be seen.
struct InjectedFault {
  enum class Action : uint8_t { kKill, kStall, kSlow, kCorrupt, kDrop, kNan };
  enum class What : uint8_t { kGradient, kWeights, kCheckpoint };
  Action action = Action::kKill;
  int64_t rank = 0;
  // The step of the job before which it happens, or the steps that the process has done by then.
  std::optional<int64_t> step, after;
  std::optional<int64_t> attempt = 0;  // restarts of the job by then; none: any
  std::optional<double> seconds;       // stall: without it for ever; slow: of every step
  int64_t steps = 1;                   // slow
  What what = What::kGradient;         // corrupt
  std::string text;                    // as it was given
};

// UsageError that names the word which is wrong.
InjectedFault parse_injected_fault(std::string_view text);

}  // namespace tessera
