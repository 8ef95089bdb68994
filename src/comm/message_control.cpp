#include "comm/message_control.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Tag and kind travel with the first bytes of the text.
constexpr size_t kLongestTag = 500;
// After so long asleep the health of the job is looked at: a rank that is a thread leaves without a
// message.
constexpr std::chrono::milliseconds kNap{100};

std::string describe(std::string_view tag, std::string_view kind) {
  return cat("'", tag, "' (", kind, " of all ranks)");
}

}  // namespace

struct MessageControl::Call {
  std::string tag;
  std::string_view kind;
  std::string description;
  Clock::time_point start;
  RunningTime waited;
};

// A second thread could not know which of two texts is for it.
class MessageControl::Use {
 public:
  Use(MessageControl& control, const std::string& tag) : control_(control), tag_(tag) {
    std::lock_guard lock(control_.mutex_);
    TESSERA_CHECK(control_.in_use_.insert(tag_).second,
                  cat("two threads use the tag '", tag_, "' at once"));
  }
  ~Use() {
    std::lock_guard lock(control_.mutex_);
    control_.in_use_.erase(tag_);
  }

 private:
  MessageControl& control_;
  const std::string& tag_;
};

MessageControl::MessageControl(int rank, int world_size, std::chrono::milliseconds deadline,
                               ControlLink link)
    : Control(rank, world_size), deadline_(deadline), link_(std::move(link)) {}

void MessageControl::report_failure(std::string_view reason) noexcept {
  link_.health->fail(cat("rank ", rank(), " failed: ", reason));
}

void MessageControl::on_failure(std::function<void(const std::string& cause)> action) {
  link_.health->on_failure(std::move(action));
}

void MessageControl::before_failure(std::function<void(const std::string& cause)> action) {
  link_.health->before_failure(std::move(action));
}

std::vector<std::string> MessageControl::meet(std::string_view tag, std::string_view kind,
                                              std::string_view text) {
  TESSERA_CHECK(!tag.empty() && tag.size() <= kLongestTag && tag.find('\n') == tag.npos,
                std::string(tag));
  Call call{std::string(tag), kind, describe(tag, kind), Clock::now(), RunningTime(kLongestLook)};
  Use use(*this, call.tag);
  std::vector<std::string> texts(static_cast<size_t>(world_size()));
  texts[static_cast<size_t>(rank())] = text;
  try {
    link_.health->check();
    if (world_size() > 1) link_.post(control_message(tag, kind, text));
    for (int from = 0; from < world_size(); ++from)
      if (from != rank()) texts[static_cast<size_t>(from)] = receive(from, call);
  } catch (const CommError& error) {
    throw CommError(cat(tag, " (", kind, " of all ranks): ", error.what()));
  }
  return texts;
}

std::string MessageControl::receive(int from, Call& call) {
  Health& health = *link_.health;
  Health::Wait waiting(health, rank(), from, call.description);
  Clock::time_point heard = call.start;
  double heard_at = 0;  // by call.waited
  while (true) {
    bool gone = health.has_left(from);
    const Clock::time_point before = heard;
    if (auto letter = link_.inbox->take(from, call.tag, kNap, heard)) {
      if (letter->kind == call.kind) return std::move(letter->text);
      health.fail_out_of_step(rank(), call.description, from, describe(call.tag, letter->kind));
    }
    health.check();
    if (gone) health.fail(left_the_job(from));
    const double waited = call.waited.seconds();
    if (heard > before) heard_at = waited;
    if (waited - heard_at >= seconds_of(deadline_)) health.fail_late(from, rank(), deadline_);
    health.check();
  }
}

}  // namespace tessera
