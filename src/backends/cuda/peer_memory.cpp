#include "backends/cuda/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "base/base64.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kNoHandle = "-";
// A reason that is no news.
constexpr const char* kSeveralHosts = "they are on several hosts";

std::byte* address(std::string_view text) {
  const auto value = parse_number<uintptr_t>(text);
  TESSERA_CHECK(value.has_value(), "what a rank says of its memory");
  return reinterpret_cast<std::byte*>(*value);
}

}  // namespace

struct PeerMemory::Told {
  std::string_view process, layout, gpu;  // its PCI address
  struct Block {
    std::byte* begin = nullptr;
    std::string_view handle;
  };
  std::vector<Block> blocks;

  explicit Told(std::string_view text) {
    const std::vector<std::string_view> words = split(text, ' ');
    TESSERA_CHECK(words.size() >= 3 && words.size() % 2 == 1, "what a rank says of its memory");
    process = words[0];
    layout = words[1];
    gpu = words[2];
    for (size_t i = 3; i < words.size(); i += 2)
      blocks.push_back({address(words[i]), words[i + 1]});
  }
};

PeerMemory::PeerMemory(CudaDevice& device, Control& control, std::vector<std::string> hosts)
    : device_(device),
      control_(control),
      hosts_(std::move(hosts)),
      process_(unique_suffix()),
      gpus_(list_gpus(device.driver())) {
  device_.driver().call(device_.driver().device_get, &own_, device_.facts().ordinal);
}

PeerMemory::~PeerMemory() {
  const Driver& driver = device_.driver();
  try {
    device_.make_current();
  } catch (const Error&) {  // a device that has failed says so where it is used
  }
  for (auto& [begin, block] : blocks_) close(block);
  for (auto& [begin, block] : retired_) close(block);
  try {
    if (shares_) control_.barrier("peers' memory given up");
    free_retired();
  } catch (const Error&) {
    // The job has failed, and others may still read. With its context the memory stays.
    CUcontext context = nullptr;
    if (!retired_.empty()) driver.release(driver.primary_context_retain, &context, own_);
  }
  for (CUdevice peer : held_) driver.release(driver.primary_context_release, peer);
}

std::string PeerMemory::tell(const std::vector<std::byte*>& blocks, uint64_t layout) const {
  const Driver& driver = device_.driver();
  std::string text = cat(process_, " ", hex(layout), " ", device_.facts().pci_id);
  for (std::byte* begin : blocks) {
    CUipcMemHandle handle{};
    // Where there are none, ranks of other processes cannot reach it.
    const bool has =
        driver.ipc_get_handle(&handle, reinterpret_cast<CUdeviceptr>(begin)) == kCudaSuccess;
    text += cat(" ", reinterpret_cast<uintptr_t>(begin), " ",
                has ? to_base64({handle.reserved, sizeof handle.reserved}) : kNoHandle);
  }
  return text;
}

std::byte* PeerMemory::open(int rank, const Told& told, size_t block, Peer& peer) {
  const Driver& driver = device_.driver();
  const Told::Block& theirs = told.blocks[block];
  CUdevice device = 0;
  // Of a GPU that is not shown to this process it shows when its memory is opened.
  for (const GpuFacts& gpu : gpus_) {
    if (gpu.pci_id != told.gpu) continue;
    int can = 0;
    driver.call(driver.device_get, &device, gpu.ordinal);
    driver.call(driver.device_can_access_peer, &can, own_, device);
    if (!can)
      throw DeviceError(cat("CUDA: ", device_.description(), " does not reach the memory of rank ",
                            rank, ", on the GPU of PCI address ", told.gpu));
  }
  if (made_here(told.process)) {
    if (enabled_.contains(device)) return theirs.begin;
    CUcontext context = nullptr;
    driver.call(driver.primary_context_retain, &context, device);
    if (!held_.insert(device).second) driver.release(driver.primary_context_release, device);
    const CUresult result = driver.enable_peer_access(context, 0u);
    if (result && result != kCudaErrorPeerAccessAlreadyEnabled)
      driver.fail(cat("memory of rank ", rank), result);
    enabled_.insert(device);
    return theirs.begin;
  }
  const auto bytes = from_base64(theirs.handle);
  CUipcMemHandle handle{};
  if (!bytes || bytes->size() != sizeof handle.reserved)
    throw DeviceError(
        cat("CUDA: rank ", rank, " has no handles of its memory for other processes"));
  std::memcpy(handle.reserved, bytes->data(), bytes->size());
  CUdeviceptr opened = 0;
  const CUresult result = driver.ipc_open_handle(&opened, handle, kIpcLazyEnablePeerAccess);
  if (result) driver.fail(cat("memory of rank ", rank), result);
  peer.opened = true;
  return reinterpret_cast<std::byte*>(opened);
}

std::string PeerMemory::reach(const Use& use, size_t number, const std::vector<Told>& told) {
  const auto of = [](const auto& list, int rank) { return list[static_cast<size_t>(rank)]; };
  const std::string host = of(hosts_, control_.rank());
  for (int rank : use.ranks)
    if (of(hosts_, rank) != host) return kSeveralHosts;
  if (use.ranks.size() > kMaxSummands) return cat("they are more than ", kMaxSummands);
  const Told own = of(told, control_.rank());
  Block& block = blocks_.at(use.begin);
  block.peers[control_.rank()].begin = use.begin;  // others may reach it, whatever becomes of this
  try {
    for (int rank : use.ranks) {
      const Told other = of(told, rank);
      if (other.blocks.size() != own.blocks.size() || other.layout != own.layout)
        return cat("rank ", rank, " has laid out its memory in another way than rank ",
                   control_.rank());
      Peer& peer = block.peers[rank];
      if (!peer.begin) peer.begin = open(rank, other, number, peer);
    }
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

void PeerMemory::share(const std::vector<Use>& uses, uint64_t layout) {
  if (uses.empty()) return;
  shares_ = true;
  std::vector<std::byte*> blocks;
  std::map<Key, size_t> numbers;  // of the block among `blocks`
  std::vector<Use> different;
  for (const Use& use : uses) {
    const auto known = std::find(blocks.begin(), blocks.end(), use.begin);
    const auto number = static_cast<size_t>(known - blocks.begin());
    if (known == blocks.end()) blocks.push_back(use.begin);
    if (numbers.emplace(Key(use.ranks, use.begin), number).second) different.push_back(use);
    blocks_[use.begin].bytes = use.bytes;
  }
  std::string text;
  {
    const auto guard = device_.lock();
    for (auto& [begin, block] : retired_) close(block);
    text = tell(blocks, layout);
  }
  const std::vector<std::string> texts = control_.exchange("peers' memory", text);
  const std::vector<Told> told(texts.begin(), texts.end());
  std::string reasons;
  {
    const auto guard = device_.lock();
    free_retired();  // all have given up what they had of it
    for (const Use& use : different) {
      std::string reason = reach(use, numbers.at(Key(use.ranks, use.begin)), told);
      std::replace(reason.begin(), reason.end(), '\n', ' ');
      reasons += reason + "\n";
    }
  }
  const std::vector<std::string> all = control_.exchange("peers' memory reached", reasons);
  std::vector<std::vector<std::string_view>> lines;
  for (const std::string& each : all) {
    lines.push_back(split(each, '\n'));
    TESSERA_CHECK(lines.back().size() == different.size() + 1,
                  "ranks make different memory known to each other");
  }
  for (size_t i = 0; i < different.size(); ++i) {
    std::string_view reason;
    for (int rank : different[i].ranks)
      if (reason.empty()) reason = lines[static_cast<size_t>(rank)][i];
    decide(different[i], reason);
  }
}

void PeerMemory::decide(const Use& use, std::string_view reason) {
  const auto [known, fresh] = reached_.emplace(Key(use.ranks, use.begin), true);
  if (known->second && !reason.empty() && reason != kSeveralHosts &&
      use.ranks.front() == control_.rank())
    TESSERA_WARN(cat("Sums between GPUs do not read the memory of the other ranks, NCCL moves it: ",
                     reason));
  if (!reason.empty()) known->second = false;
  if (!known->second || told_ || control_.rank() != 0) return;
  told_ = true;
  TESSERA_INFO("Sums between GPUs read the memory of the other ranks where it lies");
}

std::optional<Summands> PeerMemory::of(const std::vector<int>& ranks, const void* own) const {
  auto* at = static_cast<std::byte*>(const_cast<void*>(own));
  auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return std::nullopt;
  const auto& [begin, block] = *--next;
  if (at >= begin + block.bytes) return std::nullopt;
  auto reached = reached_.find(Key(ranks, begin));
  if (reached == reached_.end() || !reached->second) return std::nullopt;
  Summands parts{};
  for (int rank : ranks) parts.x[parts.count++] = block.peers.at(rank).begin + (at - begin);
  return parts;
}

bool PeerMemory::keeps(const void* memory) noexcept {
  auto* begin = static_cast<std::byte*>(const_cast<void*>(memory));
  auto found = blocks_.find(begin);
  if (found == blocks_.end()) return false;
  std::erase_if(reached_, [&](const auto& entry) { return entry.first.second == begin; });
  auto gone = blocks_.extract(found);
  if (gone.mapped().peers.empty()) return false;
  retired_.insert(std::move(gone));
  return true;
}

void PeerMemory::close(Block& block) noexcept {
  const Driver& driver = device_.driver();
  for (auto& [rank, peer] : block.peers) {
    if (peer.opened)
      driver.release(driver.ipc_close_handle, reinterpret_cast<CUdeviceptr>(peer.begin));
    peer = {};
  }
}

void PeerMemory::free_retired() noexcept {
  for (auto& [begin, block] : std::exchange(retired_, {})) device_.free(begin);
}

}  // namespace tessera::cuda
