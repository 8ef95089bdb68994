#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cudnn_attention_graphs.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// Attention and its gradient by cuDNN: bf16, causal, also with a window, heads of whole 16 bytes.
// What it declines says why and runs on this program's own kernels: dropout, documents, f32 and
// what the library itself has no engine for.
//
// Gradients are by engines whose sums are in a fixed order. cuDNN has two ways to that: it writes
// the gradient of the scores down, [heads, T, T] in bf16, and sums from there; or, from 9.25 on
// Hopper, its blocks add to dq in order, with memory that grows with T alone, slower. So the first
// is taken where these scores take at most kScoreBytes; else the second, where the library has it;
// else the first again, of some sequences or heads at a time; and this program's own kernels
// where the scores of one key/value head and its queries are more than that, at 23169 tokens
// without grouped queries. A gibibyte is also what the head has of logits at a time where a
// vocabulary is large. On an H100 the gradients of 4 x 2048 tokens, 32 heads of 64 and 8 of keys,
// take 752 us so, 820 in two parts, 968 in four, 1694 in sixteen.
class CudnnAttention {
 public:
  static constexpr int64_t kScoreBytes = int64_t{1} << 30;

  // On a device. DeviceError if cuDNN is missing, or too old.
  explicit CudnnAttention(CudaDevice& device, int64_t score_bytes = kScoreBytes);
  // For an H100 that need not be there, to plan with: by what cuDNN knows of that GPU it says what
  // workspaces it takes, to the byte (of an H200 too). It wants a driver's library and NVRTC's to
  // be there, and calls neither: the toolkit's stub of the driver does.
  explicit CudnnAttention(Device& described);

  // A launch for attention or attention_backward, or why not. Launches are not used behind the end
  // of this.
  Prepared prepare(const PrepareContext& context);

 private:
  using Sizes = CudnnAttentionSizes;
  enum class What { kForward, kGradientByScores, kGradientInOrder };
  using Planned = std::variant<std::shared_ptr<const CudnnPlan>, std::string>;

  Prepared prepare_gradient(const PrepareContext& context, const Sizes& sizes);
  Prepared attempt(const PrepareContext& context, const Sizes& whole, const Sizes& part, What what);
  // Planned once for all nodes that ask for the same.
  Planned plan(What what, const Sizes& sizes);

  const Cudnn& library_;
  Device& device_;
  int capability_;  // 90
  int64_t score_bytes_ = kScoreBytes;
  std::optional<CudnnHandle> handle_;
  std::optional<CudnnDescriptor> described_;
  std::map<std::pair<What, Sizes>, Planned> plans_;
};

}  // namespace tessera::cuda
