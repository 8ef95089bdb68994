#include "backends/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cuda/kernel_launch.h"
#include "base/error.h"
#include "ops/composite/attention.h"

namespace tessera::cuda {
namespace {

// Ids of the tensors of a graph: those of memory, then numbers of the host.
enum TensorId : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStatistics,
  kGradientOfO,
  kDq,
  kDk,
  kDv,
  kDelta,
  kDqSum,
  kScale,
  kHidden,
  kWindow,
  kOne
};

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

// Strides of [B, T, heads, D], dims in the order [B, heads, T, D].
Shape strides_of(int64_t tokens, int64_t heads, int64_t width) {
  return {tokens * heads * width, width, heads * width, 1};
}
Shape swapped(Shape s) {
  std::swap(s[2], s[3]);
  return s;
}

// The tensors of attention for some sequences and heads of a whole.
class Tensors {
 public:
  template <class Sizes>
  Tensors(CudnnGraph& graph, const Sizes& s)
      : graph_(graph),
        query_dims_{s.batch, s.heads, s.tokens, s.width},
        query_strides_(strides_of(s.tokens, s.whole_heads, s.width)),
        key_dims_{s.batch, s.kv_heads, s.tokens, s.width},
        key_strides_(strides_of(s.tokens, s.whole_kv_heads, s.width)),
        scores_{s.batch, s.heads, s.tokens, s.tokens},
        rows_{s.batch, s.heads, s.tokens, 1} {}

  const Shape& query_dims() const { return query_dims_; }
  const Shape& scores() const { return scores_; }
  const Shape& rows() const { return rows_; }
  CudnnGraph::TensorRef query(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, query_dims_, query_strides_);
  }
  CudnnGraph::TensorRef key(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, key_dims_, key_strides_);
  }
  CudnnGraph::TensorRef transposed_key(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, swapped(key_dims_), swapped(key_strides_));
  }
  // The keys between operations, from their transpose.
  CudnnGraph::TensorRef key_of_transposed(CudnnGraph::TensorRef transposed) {
    auto k = graph_.between(kCudnnFloat, key_dims_, key_strides_);
    graph_.reshape(transposed, k);
    return k;
  }
  CudnnGraph::TensorRef row(int64_t id) {
    return graph_.memory(id, kCudnnFloat, rows_, row_major_strides(rows_));
  }
  CudnnGraph::TensorRef score(int type = kCudnnFloat) { return graph_.between(type, scores_); }
  CudnnGraph::TensorRef row() { return graph_.between(kCudnnFloat, rows_); }

  // x, or the hidden number where the key is behind the query or outside of its window.
  CudnnGraph::TensorRef masked(CudnnGraph::TensorRef x, bool windowed) {
    auto hidden = graph_.scalar(kHidden);
    x = where(x, hidden, [&](auto query, auto key, auto visible) {
      graph_.pointwise(kCudnnGreaterEqual, query, key, visible, kCudnnBoolean);
    });
    if (!windowed) return x;
    auto window = graph_.scalar(kWindow);
    return where(x, hidden, [&](auto query, auto key, auto visible) {
      auto end = score();
      graph_.pointwise(kCudnnAdd, key, window, end);
      graph_.pointwise(kCudnnGreater, end, query, visible, kCudnnBoolean);
    });
  }

  // One operation with a result of its own.
  CudnnGraph::TensorRef apply(int mode, CudnnGraph::TensorRef x, CudnnGraph::TensorRef b) {
    auto y = graph_.between(kCudnnFloat, x->dims);
    graph_.pointwise(mode, x, b, y);
    return y;
  }
  CudnnGraph::TensorRef apply(int mode, CudnnGraph::TensorRef x) {
    auto y = graph_.between(kCudnnFloat, x->dims);
    graph_.pointwise(mode, x, y);
    return y;
  }
  CudnnGraph::TensorRef reduced(int op, CudnnGraph::TensorRef x) {
    auto y = row();
    graph_.reduce(op, x, y);
    return y;
  }
  CudnnGraph::TensorRef scores_of(CudnnGraph::TensorRef a, CudnnGraph::TensorRef b) {
    auto y = score();
    graph_.matmul(a, b, y);
    return y;
  }
  // x^T by `rows`, summed over the query heads of a key/value head into y.
  void gradient_of_keys(CudnnGraph::TensorRef x, CudnnGraph::TensorRef rows,
                        CudnnGraph::TensorRef y) {
    auto transposed =
        graph_.between(kCudnnBFloat16, swapped(scores_), swapped(row_major_strides(scores_)));
    graph_.reshape(x, transposed);
    if (query_dims_ == key_dims_) return graph_.matmul(transposed, rows, y);
    auto of_heads = graph_.between(kCudnnBFloat16, query_dims_);
    graph_.matmul(transposed, rows, of_heads);
    graph_.reduce(kCudnnReduceAdd, of_heads, y);
  }

 private:
  template <class Compare>
  CudnnGraph::TensorRef where(CudnnGraph::TensorRef x, CudnnGraph::TensorRef hidden,
                              Compare compare) {
    auto query = score(kCudnnInt32), key = score(kCudnnInt32), visible = score(kCudnnBoolean),
         y = score();
    graph_.index(x, 2, query);
    graph_.index(x, 3, key);
    compare(query, key, visible);
    graph_.select(x, hidden, visible, y);
    return y;
  }

  CudnnGraph& graph_;
  Shape query_dims_, query_strides_, key_dims_, key_strides_, scores_, rows_;
};

// What the host gives to every run of a launch; cuDNN reads it when the run is enqueued.
struct HostNumbers {
  float scale, hidden = -std::numeric_limits<float>::infinity(), window, one = 1;
};

std::byte* aligned_up(void* p) {
  auto at = reinterpret_cast<uintptr_t>(p);
  constexpr uintptr_t kTo = kWorkspaceAlignment;
  return static_cast<std::byte*>(p) + ((at + kTo - 1) / kTo * kTo - at);
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
    : library_(Cudnn::get()), device_(described), capability_(90) {
  described_.emplace(library_, kCudnnDeviceProperties);
  const std::string_view text = kDescribedGpu;
  described_->set(kCudnnDeviceJson, kCudnnTypeChar, std::span<const char>(text));
  described_->finalize();
  const Planned any = plan(What::kForward, {1, 128, 1, 1, 64, 1, 1, false});
  if (auto* reason = std::get_if<std::string>(&any))
    throw DeviceError(cat(*reason,
                          ": to plan without a GPU it wants to find libcuda.so.1, for which "
                          "the stub of a CUDA toolkit does, and libnvrtc"));
}

// The graph of NVIDIA's public description of its fused attention, operation by operation.
CudnnGraph CudnnAttention::forward(const Sizes& s) const {
  CudnnGraph graph(library_);
  Tensors t(graph, s);
  auto scores =
      t.apply(kCudnnMul, t.scores_of(t.query(kQ), t.transposed_key(kK)), graph.scalar(kScale));
  scores = t.masked(scores, s.windowed);
  auto most = t.reduced(kCudnnReduceMax, scores);
  auto e = t.apply(kCudnnExp, t.apply(kCudnnSub, scores, most));
  auto sum = t.reduced(kCudnnReduceAdd, e);
  graph.pointwise(kCudnnAdd, most, t.apply(kCudnnLog, sum), t.row(kStatistics));
  auto p = t.score(kCudnnBFloat16);
  graph.pointwise(kCudnnDiv, e, sum, p);
  graph.matmul(p, t.key(kV), t.query(kO));
  return graph;
}

CudnnGraph CudnnAttention::gradient(const Sizes& s, bool in_order) const {
  CudnnGraph graph(library_);
  Tensors t(graph, s);
  auto d_o = t.query(kGradientOfO), q = t.query(kQ), transposed_k = t.transposed_key(kK);
  auto scale = graph.scalar(kScale);
  // delta = rowsum(do o), times one: the place of dropout's factor, which the engines expect.
  auto product =
      graph.between(kCudnnFloat, t.query_dims(),
                    {s.heads * s.tokens * s.width, s.tokens * s.width, s.heads * s.width, 1});
  graph.pointwise(kCudnnMul, d_o, t.query(kO), product);
  auto delta = t.row(kDelta);
  graph.pointwise(kCudnnMul, t.reduced(kCudnnReduceAdd, product), graph.scalar(kOne), delta);
  // p = exp(scale q k^T - lse)
  auto scores = t.apply(kCudnnMul, t.scores_of(q, transposed_k), scale);
  scores = t.masked(t.apply(kCudnnSub, scores, t.row(kStatistics)), s.windowed);
  auto p = t.apply(kCudnnExp, scores);
  t.gradient_of_keys(p, d_o, t.key(kDv));
  // ds = p (do v^T - delta) scale
  auto ds = t.apply(kCudnnSub, t.scores_of(d_o, t.transposed_key(kV)), delta);
  ds = t.apply(kCudnnMul, t.apply(kCudnnMul, ds, p), scale);
  t.gradient_of_keys(ds, q, t.key(kDk));
  auto k = t.key_of_transposed(transposed_k);
  if (in_order) {
    auto sum = graph.memory(kDqSum, kCudnnFloat, t.query_dims(), row_major_strides(t.query_dims()));
    graph.matmul(ds, k, sum);
    graph.pointwise(kCudnnIdentity, sum, t.query(kDq));
  } else {
    graph.matmul(ds, k, t.query(kDq));
  }
  return graph;
}

CudnnAttention::Planned CudnnAttention::plan(What what, const Sizes& sizes) {
  auto known = plans_.find({what, sizes});
  if (known != plans_.end()) return known->second;
  const CudnnTarget target{handle_ ? handle_->get() : nullptr, described_ ? &*described_ : nullptr};
  Planned made;
  try {
    const bool in_order = what == What::kGradientInOrder;
    made = std::make_shared<const CudnnPlan>(
        what == What::kForward ? forward(sizes) : gradient(sizes, in_order), target,
        in_order ? std::optional(kOrderedEngine) : std::nullopt);
  } catch (const DeviceError& error) {
    made = std::string(error.what());
  }
  return plans_.emplace(std::pair(what, sizes), made).first->second;
}

namespace {

// Op is Attention or AttentionBackward.
template <class Op>
std::string declined(const Op& op, const PrepareContext& c) {
  const TensorType& q = c.inputs[0];
  if (q.dtype != DType::kBF16) return cat("cuDNN: takes bf16, not ", name(q.dtype));
  if (!op.mask().causal) return "cuDNN: causal attention only";
  if (op.mask().documents) return "cuDNN: not with documents";
  if (op.dropout().p > 0) return "cuDNN: not with dropout";
  if (q.shape[3] % 8 != 0 || q.shape[3] > 256)
    return cat("cuDNN: heads of multiples of 8 and at most 256, not ", q.shape[3], " elements");
  if (q.elements() == 0) return "cuDNN: no elements";
  return "";
}

}  // namespace

Prepared CudnnAttention::prepare(const PrepareContext& c) {
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  const bool gradient = c.op.name() == "attention_backward";
  std::string reason = gradient ? declined(static_cast<const AttentionBackward&>(c.op), c)
                                : declined(static_cast<const Attention&>(c.op), c);
  if (!reason.empty()) return reason;
  const AttentionMask mask = gradient ? static_cast<const AttentionBackward&>(c.op).mask()
                                      : static_cast<const Attention&>(c.op).mask();
  const Sizes sizes{q.shape[0], q.shape[1], q.shape[2], k.shape[2],
                    q.shape[3], q.shape[2], k.shape[2], mask.window > 0};
  return gradient ? prepare_gradient(c, sizes) : prepare_forward(c, sizes);
}

Prepared CudnnAttention::prepare_forward(const PrepareContext& c, const Sizes& sizes) {
  Planned planned = plan(What::kForward, sizes);
  if (auto* reason = std::get_if<std::string>(&planned)) return *reason;
  return launch(c, sizes, sizes, What::kForward,
                std::get<std::shared_ptr<const CudnnPlan>>(planned));
}

Prepared CudnnAttention::prepare_gradient(const PrepareContext& c, const Sizes& s) {
  // What is known of fixed orders is known of Hopper.
  if (capability_ / 10 != 9)
    return cat("cuDNN: gradients in a fixed order on compute capability 9.0 only, not ",
               capability_ / 10, ".", capability_ % 10);
  const int64_t bytes_a_head = rounded_up(s.tokens, 64) * rounded_up(s.tokens, 128) * 2,
                heads_a_group = s.heads / s.kv_heads, bytes_a_group = bytes_a_head * heads_a_group;
  std::string reasons;
  auto attempt = [&](What what, const Sizes& part) -> std::optional<Launch> {
    Planned planned = plan(what, part);
    if (auto* reason = std::get_if<std::string>(&planned)) {
      reasons += cat(reasons.empty() ? "" : "; ", *reason);
      return std::nullopt;
    }
    return launch(c, s, part, what, std::get<std::shared_ptr<const CudnnPlan>>(planned));
  };
  if (bytes_a_group * s.kv_heads * s.batch <= score_bytes_) {
    if (auto whole = attempt(What::kGradientByScores, s)) return *whole;
  }
  if (library_.version_number() >= kOrderedSince) {
    if (auto in_order = attempt(What::kGradientInOrder, s)) return *in_order;
  }
  if (bytes_a_group > score_bytes_)
    return cat("cuDNN: the scores of a key/value head take ", format_bytes(bytes_a_group),
               " of workspace for a fixed order, of at most ", format_bytes(score_bytes_),
               reasons.empty() ? "" : "; ", reasons);
  // The most sequences, or else heads of one, that divide the whole into equal parts.
  Sizes part = s;
  while (part.batch > 1 &&
         (s.batch % part.batch != 0 || bytes_a_group * s.kv_heads * part.batch > score_bytes_))
    --part.batch;
  while (part.kv_heads > 1 && (s.kv_heads % part.kv_heads != 0 ||
                               bytes_a_group * part.kv_heads * part.batch > score_bytes_))
    --part.kv_heads;
  part.heads = part.kv_heads * heads_a_group;
  // Every part begins at an aligned address of the statistics.
  if (part != s && (part.heads * s.tokens * part.batch) % 4 != 0)
    return "cuDNN: its parts would not be aligned to 16 bytes";
  if (part != s) {
    if (auto in_parts = attempt(What::kGradientByScores, part)) return *in_parts;
  }
  return reasons;
}

Launch CudnnAttention::launch(const PrepareContext& c, const Sizes& whole, const Sizes& part,
                              What what, std::shared_ptr<const CudnnPlan> plan) const {
  const bool gradient = what != What::kForward;
  const AttentionMask mask = gradient ? static_cast<const AttentionBackward&>(c.op).mask()
                                      : static_cast<const Attention&>(c.op).mask();
  const double scale = gradient ? static_cast<const AttentionBackward&>(c.op).scale()
                                : static_cast<const Attention&>(c.op).scale();
  auto numbers = std::make_shared<HostNumbers>();
  numbers->scale = static_cast<float>(scale);
  numbers->window = static_cast<float>(mask.window);

  // The plan's workspace, delta, and where dq is summed.
  const int64_t rows = part.batch * part.heads * part.tokens,
                delta_at = rounded_up(plan->workspace_bytes(), kWorkspaceAlignment),
                sum_at = delta_at + (gradient ? rounded_up(rows * 4, kWorkspaceAlignment) : 0),
                end = sum_at + (what == What::kGradientInOrder ? rows * part.width * 4 : 0);
  const int64_t batches = whole.batch / part.batch, groups = whole.kv_heads / part.kv_heads;
  std::string kernel = cat(c.op.name(), " cuDNN ", library_.version());
  if (what == What::kGradientInOrder) kernel += ", in order";
  if (batches * groups > 1) kernel += cat(", in ", batches * groups, " parts");

  // Made when they are first needed, and again when addresses change: not in a step that runs as
  // the one before.
  struct Packs {
    std::vector<const void*> addresses;
    std::vector<CudnnVariantPack> packs;
  };
  auto made = std::make_shared<Packs>();
  auto make_packs = [=, &library = library_](const LaunchArguments& a) {
    made->packs.clear();
    std::byte* workspace = aligned_up(a.workspace);
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t sequence = b * part.batch, head = g * part.heads, kv_head = g * part.kv_heads;
        const int64_t query_at = (sequence * whole.tokens * whole.heads + head) * whole.width * 2;
        const int64_t key_at =
            (sequence * whole.tokens * whole.kv_heads + kv_head) * whole.width * 2;
        const int64_t row_at = (sequence * whole.heads + head) * whole.tokens * 4;
        auto in = [&](size_t i, int64_t at) {
          return static_cast<const std::byte*>(a.inputs[i]) + at;
        };
        auto out = [&](size_t i, int64_t at) { return static_cast<std::byte*>(a.outputs[i]) + at; };
        std::vector<int64_t> ids{kQ, kK, kV};
        std::vector<const void*> at{in(0, query_at), in(1, key_at), in(2, key_at)};
        auto add = [&](int64_t id, const void* address) {
          ids.push_back(id);
          at.push_back(address);
        };
        if (gradient) {
          add(kO, in(3, query_at)), add(kStatistics, in(4, row_at));
          add(kGradientOfO, in(5, query_at)), add(kDq, out(0, query_at));
          add(kDk, out(1, key_at)), add(kDv, out(2, key_at));
          add(kDelta, workspace + delta_at), add(kOne, &numbers->one);
          if (what == What::kGradientInOrder) add(kDqSum, workspace + sum_at);
        } else {
          add(kO, out(0, query_at)), add(kStatistics, out(1, row_at));
        }
        add(kScale, &numbers->scale), add(kHidden, &numbers->hidden);
        if (whole.windowed) add(kWindow, &numbers->window);
        made->packs.emplace_back(library, ids, at, workspace);
      }
    }
  };
  auto run = [=, &library = library_, &device = device_,
              handle = handle_ ? handle_->get() : nullptr](const LaunchArguments& a) {
    TESSERA_CHECK(handle, "this GPU is only described: it cannot run");
    std::vector<const void*> addresses(a.inputs.begin(), a.inputs.end());
    addresses.insert(addresses.end(), a.outputs.begin(), a.outputs.end());
    addresses.push_back(a.workspace);
    if (made->addresses != addresses) {
      make_packs(a);
      made->addresses = addresses;
    }
    library.call(library.set_stream, handle, device.stream());
    for (const CudnnVariantPack& pack : made->packs)
      library.call(library.execute, handle, plan->get(), pack.get());
  };
  return Launch{kernel, end + kWorkspaceAlignment - 64, run};
}

}  // namespace tessera::cuda
