#include "runtime/control.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/interruption.h"
#include "base/text.h"

namespace tessera {

std::vector<std::string> Control::call(std::string_view tag, std::string_view kind,
                                       std::string_view text) {
  if (!listener_) return meet(tag, kind, text);
  listener_->control_begins(tag, kind);
  try {
    std::vector<std::string> texts = meet(tag, kind, text);
    listener_->control_ends(tag, true);
    return texts;
  } catch (...) {
    listener_->control_ends(tag, false);
    throw;
  }
}

bool Control::any(std::string_view tag, bool here) {
  return std::ranges::count(call(tag, "any", here ? "1" : "0"), "1") > 0;
}

void while_others_wait(Control& control, bool chosen, const std::string& tag,
                       const std::function<void()>& work, const std::function<void()>& abandon) {
  std::future<void> working;
  if (chosen) working = std::async(std::launch::async, interrupted_as_here(work));
  try {
    std::string all = "w";  // who works, who was asked to stop
    while (all.find('w') != all.npos) {
      bool works =
          working.valid() && working.wait_for(std::chrono::seconds(1)) != std::future_status::ready;
      std::string here = cat(works ? "w" : "-", interrupted() ? "s" : "-");
      all = join(control.exchange(tag, here), "");
      if (all.find('s') != all.npos) request_interruption();
    }
  } catch (...) {
    if (abandon) abandon();
    throw;
  }
  if (working.valid()) working.get();
}

}  // namespace tessera
