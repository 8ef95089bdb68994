#include "remote/transfer_progress.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {

TransferProgress::TransferProgress(std::string what, uint64_t bytes, double interval)
    : what_(std::move(what)),
      total_(bytes),
      interval_(interval),
      start_(monotonic_seconds()),
      shown_(start_) {}

void TransferProgress::add(const std::string& name, uint64_t bytes) {
  done_ += bytes;
  double now = monotonic_seconds();
  if (now - shown_ < interval_) return;
  shown_ = now;
  double rate = static_cast<double>(done_) / (now - start_);
  auto text = [](double count) { return format_bytes(static_cast<int64_t>(count)); };
  std::string left;
  if (total_ > done_)
    left = cat(" of ", text(static_cast<double>(total_)), ", left ",
               format_duration(static_cast<double>(total_ - done_) / rate));
  TESSERA_INFO(cat(what_, " '", name, "': ", text(static_cast<double>(done_)), " at ", text(rate),
                   "/s", left));
}

}  // namespace tessera
