#include "options/injected_fault.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

using Action = InjectedFault::Action;
using What = InjectedFault::What;

constexpr std::string_view kActions[] = {"kill", "stall", "slow", "corrupt", "drop", "nan"};
constexpr std::string_view kWhats[] = {"gradient", "weights", "checkpoint"};

class FaultParser {
 public:
  explicit FaultParser(std::string_view text) { fault_.text = text; }

  InjectedFault parse() {
    const std::string_view text = fault_.text;
    const size_t at = text.find('@');
    fault_.action = static_cast<Action>(find(text.substr(0, at), kActions, "fault"));
    if (at == text.npos) fail("has no @step=N, the step before which it is to happen");
    for (std::string_view word : split(text.substr(at + 1), ',')) take(word);
    if (fault_.step.has_value() == fault_.after.has_value())
      fail("needs step=N, the step of the job, or after=N, steps of the process");
    if (fault_.action == Action::kSlow && !fault_.seconds)
      fail("needs seconds=S, by which a step becomes longer");
    return std::move(fault_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(cat("--inject '", fault_.text, "' ", why));
  }

  template <size_t N>
  size_t find(std::string_view word, const std::string_view (&names)[N], std::string_view kind) {
    for (size_t i = 0; i < N; ++i)
      if (names[i] == word) return i;
    fail(cat("has '", word, "', which is no ", kind, ": give ", join(names, ", ")));
  }

  void take(std::string_view word) {
    const size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals),
                           value = equals == word.npos ? "" : word.substr(equals + 1);
    const Action action = fault_.action;
    const bool waits = action == Action::kStall || action == Action::kSlow;
    if (key == "rank") {
      fault_.rank = count(word, value);
    } else if (key == "step") {
      fault_.step = count(word, value);
    } else if (key == "after") {
      fault_.after = count(word, value);
    } else if (key == "attempt") {
      fault_.attempt = value == "any" ? std::nullopt : std::optional(count(word, value));
    } else if (key == "seconds" && waits) {
      fault_.seconds = seconds(word, value);
    } else if (key == "steps" && action == Action::kSlow) {
      fault_.steps = count(word, value);
    } else if (key == "what" && action == Action::kCorrupt) {
      fault_.what = static_cast<What>(find(value, kWhats, "thing to corrupt"));
    } else {
      fail(cat("has '", word, "': ", kActions[static_cast<size_t>(action)], " takes rank=, step=, ",
               "after=, attempt=", waits ? ", seconds=" : "",
               action == Action::kSlow ? ", steps=" : "",
               action == Action::kCorrupt ? ", what=" : ""));
    }
  }

  int64_t count(std::string_view word, std::string_view value) const {
    const auto number = parse_number<int64_t>(value);
    if (!number || *number < 0)
      fail(cat("has '", word, "', which is no count: give a whole number from 0 on"));
    return *number;
  }

  double seconds(std::string_view word, std::string_view value) const {
    const auto number = parse_number<double>(value);
    if (!number || !(*number > 0 && *number <= 1e6))
      fail(cat("has '", word, "', which is no time: give seconds, above 0"));
    return *number;
  }

  InjectedFault fault_;
};

}  // namespace

InjectedFault parse_injected_fault(std::string_view text) { return FaultParser(text).parse(); }

}  // namespace tessera
