#include "planning/device_sheet.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

// Estimates, rounded up: a context takes some hundred MiB, and cublasLt loads code beside it; a
// communicator has up to 24 channels of about 10 MiB each.
constexpr int64_t kContext = 768 * kMiB, kCommunicator = 256 * kMiB;
constexpr int64_t kPiece = 2 * kMiB;

// Rates of exchanges in bytes/s, as if only what a rank must send were sent once.
constexpr double kWithinHost = 361e9, kBetweenHosts = 335e9, kSumsBetweenHosts = 358e9;
constexpr double kSecondsARank = 8.87e-6, kSecondsADoubling = 240e-6;
constexpr double kGpusOfHost = 8;

}  // namespace

const DeviceSheet& device_sheet(std::string_view target) {
  static const DeviceSheet h100{.name = "NVIDIA H100 SXM, 80 GB",
                                .matrix_flops = 989e12,
                                .f32_flops = 67e12,
                                .memory_bandwidth = 3.35e12,
                                .network_bandwidth = 50e9,
                                .peer_bandwidth = 450e9,
                                .memory = 78 * kGiB,
                                .known_links = true,
                                .driver_name = "NVIDIA H100 80GB HBM3"};
  static const DeviceSheet h200{.name = "NVIDIA H200 SXM, 141 GB",
                                .matrix_flops = 989e12,
                                .f32_flops = 67e12,
                                .memory_bandwidth = 4.8e12,
                                .network_bandwidth = 50e9,
                                .peer_bandwidth = 450e9,
                                .memory = 139 * kGiB,
                                .known_links = true,
                                .driver_name = "NVIDIA H200"};
  static const DeviceSheet a100{.name = "NVIDIA A100 SXM, 80 GB",
                                .matrix_flops = 312e12,
                                .f32_flops = 19.5e12,
                                .memory_bandwidth = 2.04e12,
                                .network_bandwidth = 25e9,
                                .peer_bandwidth = 300e9,
                                .memory = 78 * kGiB,
                                .driver_name = "NVIDIA A100-SXM4-80GB",
                                .capability = 80};
  if (target == "h100") return h100;
  if (target == "h200") return h200;
  TESSERA_CHECK(target == "a100", std::string(target));
  return a100;
}

const DeviceSheet* device_sheet_of(std::string_view name) {
  for (const char* target : {"h100", "h200", "a100"})
    if (device_sheet(target).driver_name == name) return &device_sheet(target);
  return nullptr;
}

MemoryBeside memory_beside(int64_t groups, int64_t slots) {
  return {kContext, groups * kCommunicatorsOfGroup * kCommunicator, (slots + 1) * kPiece};
}

double exchange_seconds(double bytes, int64_t ranks, int64_t ranks_on_host, bool sums_everywhere) {
  if (ranks <= 1) return 0;
  const auto n = static_cast<double>(ranks), on_host = static_cast<double>(ranks_on_host);
  const bool within = ranks_on_host >= ranks;
  // A host's network is shared by its GPUs: a group with few of them on a host has a part of it.
  const double share = within ? 1 : std::min(1.0, on_host / kGpusOfHost);
  if (sums_everywhere && !within)
    return kSecondsADoubling * std::log2(n / on_host) + 2 * bytes / (kSumsBetweenHosts * share);
  const double once =
      kSecondsARank * n + bytes * (n - 1) / n / (within ? kWithinHost : kBetweenHosts * share);
  return sums_everywhere ? 2 * once : once;
}

}  // namespace tessera
