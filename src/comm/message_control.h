#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "comm/control_inbox.h"
#include "comm/health.h"
#include "runtime/control.h"

namespace tessera {

// The way to the other ranks; inbox and post may be absent where there are none.
struct ControlLink {
  std::shared_ptr<Health> health;
  std::shared_ptr<ControlInbox> inbox;
  std::function<void(const std::string& message)> post;  // to all others, without waiting
};

// The one control plane: in a call every rank gives every other its text and takes theirs.
class MessageControl final : public Control {
 public:
  MessageControl(int rank, int world_size, std::chrono::milliseconds deadline, ControlLink link);

  void report_failure(std::string_view reason) noexcept override;
  void on_failure(std::function<void(const std::string& cause)> action) override;
  void before_failure(std::function<void(const std::string& cause)> action) override;

 protected:
  std::vector<std::string> meet(std::string_view tag, std::string_view kind,
                                std::string_view text) override;

 private:
  struct Call;
  class Use;
  std::string receive(int from, Call& call);

  std::chrono::milliseconds deadline_;
  ControlLink link_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> in_use_;  // tags
};

}  // namespace tessera
