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

Prepared prepare_attention(const PrepareContext& c, Device& device) {
  if (c.inputs[0].shape[3] > kMaxHead) return cat("heads of at most ", kMaxHead, " elements");
  auto shape = shape_of<Attention>(c);
  auto further = further_operands<Attention>(c, 3);
  Kernel kernel = find_kernel(device, "plain_attention", name(c.inputs[0].dtype));
  return Launch{launch_name(c), 0, [=, &device](const LaunchArguments& a) {
                  int64_t queries = shape.batch * shape.heads * shape.tokens;
                  if (queries == 0) return;
                  FurtherOperands o = further(a);
                  device.launch(kernel, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[0],
                                a.inputs[1], a.inputs[2], a.outputs[0], a.outputs[1], o.starts,
                                o.keys, o.first_head, shape);
                }};
}

Prepared prepare_attention_backward(const PrepareContext& c, Device& device) {
  if (c.inputs[0].shape[3] > kMaxHead) return cat("heads of at most ", kMaxHead, " elements");
  auto shape = shape_of<AttentionBackward>(c);
  auto further = further_operands<AttentionBackward>(c, 6);
  std::string_view dtype = name(c.inputs[0].dtype);
  Kernel delta = find_kernel(device, "attention_delta", dtype),
         dq = find_kernel(device, "plain_attention_dq", dtype),
         dkv = find_kernel(device, "plain_attention_dkv", dtype);
  int64_t queries = shape.batch * shape.heads * shape.tokens,
          keys = shape.batch * shape.kv_heads * shape.tokens;
  return Launch{launch_name(c), queries * 4, [=, &device](const LaunchArguments& a) {
                  if (queries == 0) return;
                  FurtherOperands o = further(a);
                  device.launch(delta, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[3],
                                a.inputs[5], a.workspace, shape);
                  device.launch(dq, {warp_blocks(queries)}, {kBlockThreads}, 0, a.inputs[0],
                                a.inputs[1], a.inputs[2], a.inputs[4], a.inputs[5], a.workspace,
                                a.outputs[0], o.starts, o.keys, o.first_head, shape);
                  device.launch(dkv, {warp_blocks(keys)}, {kBlockThreads}, 0, a.inputs[0],
                                a.inputs[1], a.inputs[2], a.inputs[4], a.inputs[5], a.workspace,
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

}  // namespace

void register_attention(KernelTable& table, Device& device) {
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
