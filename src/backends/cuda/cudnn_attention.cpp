#include "backends/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/library.h"
#include "base/error.h"
#include "ops/composite/attention.h"

namespace tessera::cuda {
namespace {

// From this version on gradients can be summed in order with linear memory, on Hopper.
constexpr int64_t kOrderedSince = 92500;
// The engine for that, as NVIDIA's frontend of the library chooses it: tiles of 64 x 64, and four
// stages for the order.
const CudnnEngineChoice kOrderedEngine{6,
                                       {{kCudnnKnobTileM, 2},
                                        {kCudnnKnobTileN, 1},
                                        {kCudnnKnobKernelConfig, 2},
                                        {kCudnnKnobStreamK, 0},
                                        {kCudnnKnobClusterM, 0},
                                        {kCudnnKnobStages, 4}}};
// Alignment of workspaces, as memory of the driver has it.
constexpr int64_t kWorkspaceAlignment = 256;

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// An H100 SXM as cuDNN writes devices down, from 9.19 to 9.28; older ones pass over what is new.
constexpr const char* kDescribedGpu = R"({"cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
"multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
"maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
"maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
"smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800,
"deviceName": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85899345920, "smCountOrigin": 0,
"oversizedSharedMemoryPerBlock": 232448, "memoryBusWidth": 5120})";

// What the host gives to every run of a launch; cuDNN reads it when the run is enqueued.
struct HostNumbers {
  float scale, hidden = -std::numeric_limits<float>::infinity(), window, one = 1;
};

std::byte* aligned_up(void* p) {
  auto at = reinterpret_cast<uintptr_t>(p);
  constexpr uintptr_t kTo = kWorkspaceAlignment;
  return static_cast<std::byte*>(p) + ((at + kTo - 1) / kTo * kTo - at);
}

// What attention and its gradient have in common.
struct AttentionFacts {
  AttentionMask mask;
  double scale = 1, dropout = 0;
  bool gradient = false;
};
AttentionFacts facts_of(const Op& any) {
  if (any.name() == "attention_backward") {
    const auto& op = static_cast<const AttentionBackward&>(any);
    return {op.mask(), op.scale(), op.dropout().p, true};
  }
  const auto& op = static_cast<const Attention&>(any);
  return {op.mask(), op.scale(), op.dropout().p, false};
}

std::string declined(const AttentionFacts& facts, const TensorType& q) {
  if (q.dtype != DType::kBF16) return cat("cuDNN: takes bf16, not ", name(q.dtype));
  if (!facts.mask.causal) return "cuDNN: causal attention only";
  if (facts.mask.documents) return "cuDNN: not with documents";
  if (facts.dropout > 0) return "cuDNN: not with dropout";
  if (q.shape[3] % 8 != 0 || q.shape[3] > 256)
    return cat("cuDNN: heads of multiples of 8 and at most 256, not ", q.shape[3], " elements");
  if (q.elements() == 0) return "cuDNN: no elements";
  return "";
}

// A node's runs of one plan, part after part, in one workspace: that of the plan, then delta, then
// where dq is summed.
class AttentionRuns {
 public:
  AttentionRuns(const AttentionFacts& facts, const CudnnAttentionSizes& whole,
                const CudnnAttentionSizes& part, bool in_order,
                std::shared_ptr<const CudnnPlan> plan)
      : whole_(whole),
        part_(part),
        gradient_(facts.gradient),
        in_order_(in_order),
        plan_(std::move(plan)) {
    numbers_.scale = static_cast<float>(facts.scale);
    numbers_.window = static_cast<float>(facts.mask.window);
    const int64_t rows = part.batch * part.heads * part.tokens;
    delta_at_ = rounded_up(plan_->workspace_bytes(), kWorkspaceAlignment);
    sum_at_ = delta_at_ + (gradient_ ? rounded_up(rows * 4, kWorkspaceAlignment) : 0);
    end_ = sum_at_ + (in_order ? rows * part.width * 4 : 0);
  }
  int64_t parts() const { return batches() * groups(); }
  // With what it takes to align what the plan gives, which is to 64 bytes.
  int64_t workspace_bytes() const { return end_ + kWorkspaceAlignment - 64; }

  void run(cudnnHandle handle, CUstream stream, const LaunchArguments& a) {
    if (!are_at(a)) make_packs(a);
    const Cudnn& library = plan_->library();
    library.call(library.set_stream, handle, stream);
    for (const CudnnVariantPack& pack : packs_)
      library.call(library.execute, handle, plan_->get(), pack.get());
  }

 private:
  int64_t batches() const { return whole_.batch / part_.batch; }
  int64_t groups() const { return whole_.kv_heads / part_.kv_heads; }
  bool are_at(const LaunchArguments& a) const {
    return workspace_ == a.workspace && std::ranges::equal(inputs_, a.inputs) &&
           std::ranges::equal(outputs_, a.outputs);
  }
  // When they are first needed, and again when addresses change: not in a step like the one before.
  void make_packs(const LaunchArguments& a) {
    packs_.clear();
    inputs_.assign(a.inputs.begin(), a.inputs.end());
    outputs_.assign(a.outputs.begin(), a.outputs.end());
    workspace_ = a.workspace;
    for (int64_t b = 0; b < batches(); ++b)
      for (int64_t g = 0; g < groups(); ++g)
        add_pack(a, b * part_.batch, g * part_.heads, g * part_.kv_heads);
  }
  void add_pack(const LaunchArguments& a, int64_t sequence, int64_t head, int64_t kv_head) {
    using namespace cudnn_attention;
    const int64_t tokens = sequence * whole_.tokens,
                  query_at = (tokens * whole_.whole_heads + head) * whole_.width * 2,
                  key_at = (tokens * whole_.whole_kv_heads + kv_head) * whole_.width * 2,
                  row_at = (sequence * whole_.whole_heads + head) * whole_.tokens * 4;
    std::vector<int64_t> ids;
    std::vector<const void*> addresses;
    auto add = [&](int64_t id, const void* address, int64_t offset = 0) {
      ids.push_back(id);
      addresses.push_back(static_cast<const std::byte*>(address) + offset);
    };
    std::byte* workspace = aligned_up(a.workspace);
    add(kQ, a.inputs[0], query_at);
    add(kK, a.inputs[1], key_at);
    add(kV, a.inputs[2], key_at);
    if (gradient_) {
      add(kO, a.inputs[3], query_at);
      add(kStatistics, a.inputs[4], row_at);
      add(kGradientOfO, a.inputs[5], query_at);
      add(kDq, a.outputs[0], query_at);
      add(kDk, a.outputs[1], key_at);
      add(kDv, a.outputs[2], key_at);
      add(kDelta, workspace, delta_at_);
      add(kOne, &numbers_.one);
      if (in_order_) add(kDqSum, workspace, sum_at_);
    } else {
      add(kO, a.outputs[0], query_at);
      add(kStatistics, a.outputs[1], row_at);
    }
    add(kScale, &numbers_.scale);
    add(kHidden, &numbers_.hidden);
    if (whole_.windowed) add(kWindow, &numbers_.window);
    packs_.emplace_back(plan_->library(), ids, addresses, workspace);
  }

  CudnnAttentionSizes whole_, part_;
  bool gradient_, in_order_;
  std::shared_ptr<const CudnnPlan> plan_;
  HostNumbers numbers_{};
  int64_t delta_at_ = 0, sum_at_ = 0, end_ = 0;
  std::vector<const void*> inputs_, outputs_;
  const void* workspace_ = nullptr;
  std::vector<CudnnVariantPack> packs_;
};

// cuDNN looks for the driver's library again for every graph, and each time loads and unloads
// NVRTC, which leaves memory behind: where there is none it is not asked.
const Cudnn& library_to_plan_with() {
  constexpr std::array kDriver{"libcuda.so.1"};
  try {
    const Library driver("driver", kDriver);
  } catch (const DeviceError& error) {
    throw DeviceError(
        cat("cuDNN: to plan without a GPU it wants to find libcuda.so.1, for which the "
            "stub of a CUDA toolkit does: ",
            error.what()));
  }
  return Cudnn::get();
}

}  // namespace

CudnnAttention::CudnnAttention(CudaDevice& device, int64_t score_bytes)
    : library_(Cudnn::get()),
      device_(device),
      capability_(device.facts().major * 10 + device.facts().minor),
      score_bytes_(score_bytes) {
  if (device.driver().emulated() && !library_.emulated())
    throw DeviceError(
        cat("CUDA: no cuDNN for an emulated GPU: '", library_.path(), "' is for real ones"));
  const auto guard = device.lock();
  handle_.emplace(library_);
}

CudnnAttention::CudnnAttention(Device& described)
    : library_(library_to_plan_with()), device_(described), capability_(90) {
  described_.emplace(library_, kCudnnDeviceProperties);
  const std::string_view text = kDescribedGpu;
  described_->set(kCudnnDeviceJson, kCudnnTypeChar, std::span<const char>(text));
  described_->finalize();
  const Planned any = plan(What::kForward, {1, 128, 1, 1, 64, 1, 1, false});
  if (auto* reason = std::get_if<std::string>(&any))
    throw DeviceError(cat(*reason, ": to plan without a GPU it wants to find libnvrtc"));
}

CudnnAttention::Planned CudnnAttention::plan(What what, const Sizes& sizes) {
  auto known = plans_.find({what, sizes});
  if (known != plans_.end()) return known->second;
  const CudnnTarget target{handle_ ? handle_->get() : nullptr, described_ ? &*described_ : nullptr};
  Planned made;
  try {
    const bool in_order = what == What::kGradientInOrder;
    made = std::make_shared<const CudnnPlan>(
        what == What::kForward ? cudnn_attention_graph(library_, sizes)
                               : cudnn_attention_gradient_graph(library_, sizes, in_order),
        target, in_order ? std::optional(kOrderedEngine) : std::nullopt);
  } catch (const DeviceError& error) {
    made = std::string(error.what());
  }
  return plans_.emplace(std::pair(what, sizes), made).first->second;
}

Prepared CudnnAttention::prepare(const PrepareContext& c) {
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  const AttentionFacts facts = facts_of(c.op);
  std::string reason = declined(facts, q);
  if (!reason.empty()) return reason;
  const Sizes sizes{q.shape[0], q.shape[1], q.shape[2], k.shape[2],
                    q.shape[3], q.shape[2], k.shape[2], facts.mask.window > 0};
  return facts.gradient ? prepare_gradient(c, sizes) : attempt(c, sizes, sizes, What::kForward);
}

// By one plan for such parts of the whole, or why not.
Prepared CudnnAttention::attempt(const PrepareContext& c, const Sizes& whole, const Sizes& part,
                                 What what) {
  Planned planned = plan(what, part);
  if (auto* reason = std::get_if<std::string>(&planned)) return *reason;
  const bool in_order = what == What::kGradientInOrder;
  auto runs = std::make_shared<AttentionRuns>(facts_of(c.op), whole, part, in_order,
                                              std::get<std::shared_ptr<const CudnnPlan>>(planned));
  std::string kernel = cat(c.op.name(), " cuDNN ", library_.version(), in_order ? ", in order" : "",
                           runs->parts() > 1 ? cat(", in ", runs->parts(), " parts") : "");
  return Launch{
      kernel, runs->workspace_bytes(),
      [runs, &device = device_, handle = handle_ ? handle_->get() : nullptr](const auto& a) {
        TESSERA_CHECK(handle, "this GPU is only described: it cannot run");
        runs->run(handle, device.stream(), a);
      }};
}

Prepared CudnnAttention::prepare_gradient(const PrepareContext& c, const Sizes& s) {
  // Elsewhere cuDNN comes to a fixed order in other ways, which were not tried.
  if (capability_ / 10 != 9)
    return cat("cuDNN: gradients in a fixed order on compute capability 9.0 only, not ",
               capability_ / 10, ".", capability_ % 10);
  const int64_t heads_a_group = s.heads / s.kv_heads,
                bytes_a_group =
                    rounded_up(s.tokens, 64) * rounded_up(s.tokens, 128) * 2 * heads_a_group;
  const auto fits = [&](const Sizes& part) {
    return bytes_a_group * part.kv_heads * part.batch <= score_bytes_;
  };
  Prepared made = std::string();
  std::string reasons;
  const auto taken = [&](const Sizes& part, What what) {
    made = attempt(c, s, part, what);
    auto* reason = std::get_if<std::string>(&made);
    if (reason) reasons += cat(reasons.empty() ? "" : "; ", *reason);
    return !reason;
  };
  if (fits(s) && taken(s, What::kGradientByScores)) return made;
  if (library_.version_number() >= kOrderedSince && taken(s, What::kGradientInOrder)) return made;
  if (bytes_a_group > score_bytes_)
    return cat("cuDNN: the scores of a key/value head take ", format_bytes(bytes_a_group),
               " of workspace for a fixed order, of at most ", format_bytes(score_bytes_),
               reasons.empty() ? "" : "; ", reasons);
  // The most sequences, or else heads of one, that divide the whole into equal parts.
  Sizes part = s;
  while (part.batch > 1 && (s.batch % part.batch != 0 || !fits(part))) --part.batch;
  while (part.kv_heads > 1 && (s.kv_heads % part.kv_heads != 0 || !fits(part))) --part.kv_heads;
  part.heads = part.kv_heads * heads_a_group;
  if (part == s) return reasons;
  // Every part begins at an aligned address of the statistics.
  if (part.heads * s.tokens * part.batch % 4 != 0)
    return "cuDNN: its parts would not be aligned to 16 bytes";
  return taken(part, What::kGradientByScores) ? made : Prepared(reasons);
}

}  // namespace tessera::cuda
