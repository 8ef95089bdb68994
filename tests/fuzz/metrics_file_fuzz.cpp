#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "plot/run_metrics.h"
#include "plot/svg_chart.h"
#include "plot/terminal_chart.h"

namespace {

class Bytes final : public tessera::ByteSource {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  std::string name() const override { return "input"; }
  uint64_t size() const override { return size_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) __builtin_trap();
    std::memcpy(out.data(), data_ + offset, out.size());
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace

// Any bytes as a metrics file: refused, or curves that can be drawn.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string keys[] = {"loss"};
  try {
    const RunMetrics metrics(Bytes(data, size), keys);
    const Panel panels[] = {{"loss", {smoothed(metrics.series("loss"), 0.5)}}};
    terminal_chart(panels[0], 60, 10, true);
    svg_chart(panels);
  } catch (const UserError&) {
  }
  return 0;
}
