#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// A GPU as its maker's data sheet has it. Nothing here was measured by this program.
struct DeviceSheet {
  std::string name;  // "NVIDIA H100 SXM, 80 GB"
  // Of dense products of bf16 by its matrix units, and of f32: FLOP/s.
  double matrix_flops = 0, f32_flops = 0;
  double memory_bandwidth = 0;  // bytes/s
  // Of one GPU, one way, in bytes/s: its share of the network of the maker's own hosts, and NVLink.
  double network_bandwidth = 0, peer_bandwidth = 0;
  // Bytes that programs find on it: a little less than the sheet says, an estimate.
  int64_t memory = 0;
  // Whether the times of exchanges below are of hosts with this GPU.
  bool known_links = false;
  std::string driver_name;  // as the driver calls it
  int capability = 90;      // of its kernels: 80 or 90
};

// Of "h100", "h200" or "a100", SXM each.
const DeviceSheet& device_sheet(std::string_view target);
// Of one of these by the name that the driver has for it ("NVIDIA H100 80GB HBM3"); else nullptr.
const DeviceSheet* device_sheet_of(std::string_view name);

// What a rank takes of its GPU beside what is planned: estimates, of which none was measured.
struct MemoryBeside {
  int64_t context = 0;    // of the driver: context, code of kernels, recorded graphs
  int64_t exchanges = 0;  // buffers of NCCL
  int64_t pieces = 0;     // the driver gives memory in pieces; what is lost to that at most
  int64_t total() const { return context + exchanges + pieces; }
};
// Of a program with so many groups of ranks that exchange with each other, and state slots.
MemoryBeside memory_beside(int64_t groups, int64_t slots);

// NCCL's communicators of a group of ranks: one for gathers, one for sums.
inline constexpr int64_t kCommunicatorsOfGroup = 2;

// Seconds of an exchange among `ranks`, of which so many are on a host (8 GPUs a host): `bytes` is
// the whole tensor. A model of what was published of nccl-tests on hosts of 8 H100 with 3200 Gbit/s
// of network, for 16 to 256 GPUs within 7 % on average and 24 % at most; beyond it extrapolates.
double exchange_seconds(double bytes, int64_t ranks, int64_t ranks_on_host, bool sums_everywhere);

}  // namespace tessera
