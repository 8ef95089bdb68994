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

// How kernels/attention.cu cuts a problem: rows of a tile, elements of a head with its padding,
// rows of the other side that the gradients work on at a time.
constexpr int64_t kTileRows = 64, kMaxTiledHead = 128, kTileThreads = 128;
int64_t tile_width(int64_t width) { return width <= 64 ? 64 : 128; }
int64_t other_rows(int64_t width, bool drops) { return (width <= 64 ? 64 : 32) / (drops ? 2 : 1); }

// Whether tensor cores take it.
bool tiled(const AttentionShape& shape, DType dtype) {
  constexpr int64_t kMostTokens = int64_t{1} << 30, kMostBlocks = 65535;
  return dtype == DType::kBF16 && shape.width % 8 == 0 && shape.width <= kMaxTiledHead &&
         shape.tokens <= kMostTokens && shape.batch <= kMostBlocks && shape.heads <= kMostBlocks;
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
  if (c.inputs[0].shape[3] > kMaxHead) return cat("heads of at most ", kMaxHead, " elements");
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

Prepared prepare_attention_backward(const PrepareContext& c, Device& device) {
  if (c.inputs[0].shape[3] > kMaxHead) return cat("heads of at most ", kMaxHead, " elements");
  auto shape = shape_of<AttentionBackward>(c);
  auto further = further_operands<AttentionBackward>(c, 6);
  std::string_view dtype = name(c.inputs[0].dtype);
  bool tiles = tiled(shape, c.inputs[0].dtype);
  Kernel delta = find_kernel(device, "attention_delta", dtype),
         plain_dq = find_kernel(device, "plain_attention_dq", dtype),
         plain_dkv = find_kernel(device, "plain_attention_dkv", dtype), tiled_dq = plain_dq,
         tiled_dkv = plain_dkv;
  const bool drops = static_cast<const AttentionBackward&>(c.op).dropout().p > 0;
  if (tiles) {
    std::string suffix = tiled_suffix(shape, drops);
    tiled_dq = find_kernel(device, "attention_dq", suffix);
    tiled_dkv = find_kernel(device, "attention_dkv", suffix);
  }
  int64_t queries = shape.batch * shape.heads * shape.tokens,
          keys = shape.batch * shape.kv_heads * shape.tokens, width = tile_width(shape.width);
  auto shared = static_cast<int>((2 * kTileRows + 4 * other_rows(shape.width, drops)) * width * 2);
  return Launch{
      cat(launch_name(c), tiles ? " mma" : ""), queries * 4,
      [=, &device](const LaunchArguments& a) {
        if (queries == 0) return;
        FurtherOperands o = further(a);
        bool by_tiles = tiles && in_vectors({a.inputs[0], a.inputs[1], a.inputs[2], a.inputs[5],
                                             a.outputs[0], a.outputs[1], a.outputs[2]});
        Shape3 block{static_cast<unsigned>(by_tiles ? kTileThreads : kBlockThreads)};
        Shape3 of_queries = by_tiles ? tile_grid(shape, shape.heads) : Shape3{warp_blocks(queries)},
               of_keys = by_tiles ? tile_grid(shape, shape.kv_heads) : Shape3{warp_blocks(keys)};
        device.launch(delta, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[3], a.inputs[5],
                      a.workspace, shape);
        device.launch(by_tiles ? tiled_dq : plain_dq, of_queries, block, by_tiles ? shared : 0,
                      a.inputs[0], a.inputs[1], a.inputs[2], a.inputs[4], a.inputs[5], a.workspace,
                      a.outputs[0], o.starts, o.keys, o.first_head, shape);
        device.launch(by_tiles ? tiled_dkv : plain_dkv, of_keys, block, by_tiles ? shared : 0,
                      a.inputs[0], a.inputs[1], a.inputs[2], a.inputs[4], a.inputs[5], a.workspace,
                      a.outputs[1], a.outputs[2], o.starts, o.keys, o.first_head, shape);
      }};
}

Prepared prepare_cached_attention(const PrepareContext& c, Device& device) {
  const auto& op = static_cast<const CachedAttention&>(c.op);
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  if (q.shape[3] > kMaxHead) return cat("heads of at most ", kMaxHead, " elements");
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

// By a library where it takes the node; then on own kernels where an operand is not aligned.
Prepared prepare_by_library(const PrepareContext& c, Device& device, const Prepare& library,
                            Prepared (*prepare)(const PrepareContext&, Device&)) {
  Prepared taken = library(c);
  auto* launch = std::get_if<Launch>(&taken);
  if (!launch) return taken;
  Prepared own = prepare(c, device);
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

void register_attention(KernelTable& table, Device& device, const Prepare& library) {
  auto add_library = [&](std::string_view op, auto prepare) {
    if (!library) return;
    table.add(op, [=, &device](const PrepareContext& c) {
      return prepare_by_library(c, device, library, prepare);
    });
  };
  add_library("attention", prepare_attention);
  add_library("attention_backward", prepare_attention_backward);
  auto add = [&](std::string_view op, auto prepare) {
    table.add(op, for_floats(0, [prepare, &device](const PrepareContext& c) {
                return prepare(c, device);
              }));
  };
  add("attention", prepare_attention);
  add("attention_backward", prepare_attention_backward);
  add("cached_attention", prepare_cached_attention);
}

}  // namespace tessera::cuda
