#include "backends/cuda/composite_kernels.h"
#include "base/random.h"
#include "ops/composite/attention.h"
#include "ops/composite/dropout.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kMaxHead = 256, kWarpsABlock = 8;

// Op is Attention or AttentionBackward.
template <class Op>
AttentionShape shape_of(const PrepareContext& c) {
  const auto& op = static_cast<const Op&>(c.op);
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  AttentionShape shape;
  shape.batch = q.shape[0];
  shape.tokens = q.shape[1];
  shape.heads = q.shape[2];
  shape.kv_heads = k.shape[2];
  shape.width = q.shape[3];
  shape.window = op.mask().window;
  shape.causal = op.mask().causal;
  shape.scale = static_cast<float>(op.scale());
  if (op.dropout().operands() > 0) {
    shape.threshold = static_cast<uint32_t>(dropout_threshold(op.dropout().p));
    shape.keep_scale = static_cast<float>(dropout_scale(op.dropout().p));
    shape.stream = stream_of(op.dropout().stream);
  }
  return shape;
}

// Where the operands behind the first ones are; null: there is none.
struct FurtherOperands {
  const void *starts = nullptr, *keys = nullptr, *first_head = nullptr;
};
template <class Op>
auto further_operands(const PrepareContext& c, size_t at) {
  const auto& op = static_cast<const Op&>(c.op);
  return [documents = op.mask().documents, dropout = op.dropout().operands(),
          at](const LaunchArguments& a) {
    FurtherOperands o;
    size_t next = at;
    if (documents) o.starts = a.inputs[next++];
    if (dropout > 0) o.keys = a.inputs[next];
    if (dropout > 1) o.first_head = a.inputs[next + 1];
    return o;
  };
}

unsigned warp_blocks(int64_t warps) { return blocks_for(warps, kWarpsABlock); }

// How kernels/attention.cu and its gradients cut a problem: rows of a tile, elements of a head with
// its padding, rows of the other side that the gradients work on at a time.
constexpr int64_t kTileRows = 64, kMaxTiledHead = 128, kTileThreads = 128, kMostBlocks = 65535;
int64_t tile_width(int64_t width) { return width <= 64 ? 64 : 128; }
int64_t other_rows(int64_t width, bool drops) { return (width <= 64 ? 64 : 32) / (drops ? 2 : 1); }

// Whether tensor cores take it.
bool tiled(const AttentionShape& shape, DType dtype) {
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  return dtype == DType::kBF16 && shape.width % 8 == 0 && shape.width <= kMaxTiledHead &&
         shape.tokens <= kMostTokens && shape.batch <= kMostBlocks && shape.heads <= kMostBlocks &&
         shape.scale > 0;
}
// "bf16_64", "dropout_bf16_128".
std::string tiled_suffix(const AttentionShape& shape, bool dropout) {
  return cat(dropout ? "dropout_" : "", "bf16_", tile_width(shape.width));
}
Shape3 tile_grid(const AttentionShape& shape, int64_t heads) {
  return {blocks_for(shape.tokens, kTileRows), static_cast<unsigned>(heads),
          static_cast<unsigned>(shape.batch)};
}

Prepared prepare_attention(const PrepareContext& c, Device& device) {
  if (c.inputs[0].shape[3] > kMaxHead) return heads_too_wide(kMaxHead);
  auto shape = shape_of<Attention>(c);
  auto further = further_operands<Attention>(c, 3);
  bool tiles = tiled(shape, c.inputs[0].dtype);
  Kernel plain = find_kernel(device, "plain_attention", name(c.inputs[0].dtype)), kernel = plain;
  if (tiles)
    kernel = find_kernel(device, "attention",
                         tiled_suffix(shape, static_cast<const Attention&>(c.op).dropout().p > 0));
  auto shared = static_cast<int>(5 * kTileRows * tile_width(shape.width) * 2);
  return Launch{
      cat(launch_name(c), tiles ? " mma" : ""), 0, [=, &device](const LaunchArguments& a) {
        int64_t queries = shape.batch * shape.heads * shape.tokens;
        if (queries == 0) return;
        FurtherOperands o = further(a);
        bool by_tiles = tiles && in_vectors({a.inputs[0], a.inputs[1], a.inputs[2], a.outputs[0]});
        Shape3 grid = by_tiles ? tile_grid(shape, shape.heads) : Shape3{warp_blocks(queries)};
        Shape3 block{static_cast<unsigned>(by_tiles ? kTileThreads : kBlockThreads)};
        device.launch(by_tiles ? kernel : plain, grid, block, by_tiles ? shared : 0, a.inputs[0],
                      a.inputs[1], a.inputs[2], a.outputs[0], a.outputs[1], o.starts, o.keys,
                      o.first_head, shape);
      }};
}

// How gradients are launched: so many pairs of a row and a key/value head at a time, whose
// gradients of scores take `slope_bytes`, with padding; none: dq computes scores again.
struct BackwardLaunches {
  int64_t pairs = 0, most = 0, slope_bytes = 0;
};
BackwardLaunches backward_launches(const AttentionShape& s, int64_t slope_bytes) {
  const int64_t group = std::max<int64_t>(s.heads / s.kv_heads, 1),
                pitch = std::max<int64_t>((s.tokens + kTileRows - 1) / kTileRows, 1) * kTileRows;
  BackwardLaunches l{.pairs = s.batch * s.kv_heads};
  const int64_t fitting = std::min(slope_bytes / 2 / pitch / pitch / group, l.pairs);
  l.most = std::min(fitting > 0 ? fitting : l.pairs, kMostBlocks / group);
  if (fitting > 0) l.slope_bytes = l.most * group * pitch * pitch * 2;
  return l;
}

Prepared prepare_attention_backward(const PrepareContext& c, Device& device, int64_t slope_bytes) {
  if (c.inputs[0].shape[3] > kMaxHead) return heads_too_wide(kMaxHead);
  auto shape = shape_of<AttentionBackward>(c);
  auto further = further_operands<AttentionBackward>(c, 6);
  std::string_view dtype = name(c.inputs[0].dtype);
  bool tiles = tiled(shape, c.inputs[0].dtype);
  Kernel delta = find_kernel(device, "attention_delta", dtype),
         plain_dq = find_kernel(device, "plain_attention_dq", dtype),
         plain_dkv = find_kernel(device, "plain_attention_dkv", dtype), tiled_dq = plain_dq,
         dq_of_slopes = plain_dq, tiled_dkv = plain_dkv, delta_of_vectors = delta;
  const bool drops = static_cast<const AttentionBackward&>(c.op).dropout().p > 0;
  const int64_t width = tile_width(shape.width);
  BackwardLaunches launches;
  if (tiles) {
    std::string suffix = tiled_suffix(shape, drops);
    tiled_dq = find_kernel(device, "attention_dq", suffix);
    tiled_dkv = find_kernel(device, "attention_dkv", suffix);
    dq_of_slopes = find_kernel(device, "attention_dq_of_slopes_bf16", cat(width));
    delta_of_vectors = find_kernel(device, "attention_delta_bf16", cat(width));
    launches = backward_launches(shape, slope_bytes);
  }
  int64_t queries = shape.batch * shape.heads * shape.tokens,
          keys = shape.batch * shape.kv_heads * shape.tokens, group = shape.heads / shape.kv_heads;
  auto shared = static_cast<int>((2 * kTileRows + 4 * other_rows(shape.width, drops)) * width * 2),
       shared_of_slopes = static_cast<int>(2 * kTileRows * (kTileRows + width) * 2);
  const int64_t slopes_begin = aligned_bytes(queries * 4);
  const float slope_factor = shape.scale * shape.keep_scale;
  return Launch{
      cat(launch_name(c), tiles ? " mma" : ""), slopes_begin + launches.slope_bytes,
      [=, &device](const LaunchArguments& a) {
        if (queries == 0) return;
        FurtherOperands o = further(a);
        const void *q = a.inputs[0], *k = a.inputs[1], *v = a.inputs[2], *lse = a.inputs[4],
                   *dout = a.inputs[5];
        void *dq = a.outputs[0], *dk = a.outputs[1], *dv = a.outputs[2], *deltas = a.workspace;
        if (!tiles || !in_vectors({q, k, v, a.inputs[3], dout, dq, dk, dv})) {
          device.launch(delta, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[3], dout,
                        deltas, shape);
          device.launch(plain_dq, {warp_blocks(queries)}, {kBlockThreads}, 0, q, k, v, lse, dout,
                        deltas, dq, o.starts, o.keys, o.first_head, shape);
          device.launch(plain_dkv, {warp_blocks(keys)}, {kBlockThreads}, 0, q, k, v, lse, dout,
                        deltas, dk, dv, o.starts, o.keys, o.first_head, shape);
          return;
        }
        launch_threads(device, delta_of_vectors, queries * width / 8, a.inputs[3], dout, deltas,
                       shape);
        const Shape3 block{static_cast<unsigned>(kTileThreads)};
        void* slopes = launches.slope_bytes > 0
                           ? static_cast<std::byte*>(a.workspace) + slopes_begin
                           : nullptr;
        if (!slopes)
          device.launch(tiled_dq, tile_grid(shape, shape.heads), block, shared, q, k, v, lse, dout,
                        deltas, dq, o.starts, o.keys, o.first_head, shape);
        for (int64_t first = 0; first < launches.pairs; first += launches.most) {
          const int64_t pairs = std::min(launches.most, launches.pairs - first);
          const unsigned row_tiles = blocks_for(shape.tokens, kTileRows);
          device.launch(tiled_dkv, {row_tiles, static_cast<unsigned>(pairs)}, block, shared, q, k,
                        v, lse, dout, deltas, dk, dv, slopes, o.starts, o.keys, o.first_head, first,
                        shape);
          if (slopes)
            device.launch(dq_of_slopes, {row_tiles, static_cast<unsigned>(pairs * group)}, block,
                          shared_of_slopes, slopes, k, dq, o.starts, slope_factor, first, shape);
        }
      }};
}

Prepared prepare_cached_attention(const PrepareContext& c, Device& device) {
  const auto& op = static_cast<const CachedAttention&>(c.op);
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  if (q.shape[3] > kMaxHead) return heads_too_wide(kMaxHead);
  CachedShape shape;
  shape.batch = q.shape[0];
  shape.queries = q.shape[1];
  shape.rows = k.shape[0];
  shape.capacity = k.shape[1];
  shape.heads = q.shape[2];
  shape.kv_heads = k.shape[2];
  shape.width = q.shape[3];
  shape.window = op.window();
  shape.scale = static_cast<float>(op.scale());
  Kernel kernel = find_kernel(device, "cached_attention", name(q.dtype));
  return Launch{launch_name(c), 0, [=, &device](const LaunchArguments& a) {
                  int64_t queries = shape.batch * shape.heads * shape.queries;
                  if (queries == 0) return;
                  device.launch(kernel, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[0],
                                a.inputs[1], a.inputs[2], a.inputs[3], a.inputs[4], a.outputs[0],
                                shape);
                }};
}

// By a library where it takes the node; then by `unaligned` where an operand is not aligned.
Prepared prepare_by_library(const PrepareContext& c, const Prepare& library,
                            const Prepare& unaligned) {
  Prepared taken = library(c);
  auto* launch = std::get_if<Launch>(&taken);
  if (!launch) return taken;
  Prepared own = unaligned(c);
  auto* otherwise = std::get_if<Launch>(&own);
  if (!otherwise) return own;
  launch->workspace_bytes = std::max(launch->workspace_bytes, otherwise->workspace_bytes);
  launch->run = [by_library = launch->run, by_own = otherwise->run](const LaunchArguments& a) {
    const bool aligned = std::ranges::all_of(a.inputs, [](auto p) { return in_vectors({p}); }) &&
                         std::ranges::all_of(a.outputs, [](auto p) { return in_vectors({p}); });
    aligned ? by_library(a) : by_own(a);
  };
  return taken;
}

}  // namespace

void register_attention(KernelTable& table, Device& device, const Prepare& library,
                        int64_t slope_bytes) {
  const auto add = [&](std::string_view op, const Prepare& own, const Prepare& unaligned) {
    if (library)
      table.add(op, [library, unaligned](const PrepareContext& c) {
        return prepare_by_library(c, library, unaligned);
      });
    table.add(op, for_floats(0, own));
  };
  const Prepare forward = [&device](const PrepareContext& c) {
    return prepare_attention(c, device);
  };
  const auto backward = [&device](int64_t bytes) {
    return [&device, bytes](const PrepareContext& c) {
      return prepare_attention_backward(c, device, bytes);
    };
  };
  add("attention", forward, forward);
  add("attention_backward", backward(slope_bytes), backward(0));
  table.add("cached_attention", for_floats(0, [&device](const PrepareContext& c) {
              return prepare_cached_attention(c, device);
            }));
}

}  // namespace tessera::cuda
