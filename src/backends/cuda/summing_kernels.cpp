#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/primitive_kernels.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera::cuda {
namespace {

// Whether a block works on a result, not a thread: where many neighbours are reduced, or where
// there are few results.
bool reduces_by_blocks(const ReduceShape& shape) {
  if (shape.reduced.dims != 1) return false;
  return shape.reduced.steps[0] == 1 ? shape.terms >= 64
                                     : shape.terms >= 1024 && shape.results < 1024;
}

Prepared prepare_reduce(const PrepareContext& context, Device& device) {
  const auto& reduce = static_cast<const Reduce&>(context.op);
  const TensorType& x = context.inputs[0];
  if (!computes(x.dtype) && !counts(x.dtype)) return not_taken(context, x.dtype);
  std::vector<int64_t> strides = row_major_strides(x.shape);
  ReduceShape shape;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    bool reduced = std::ranges::count(reduce.dims(), static_cast<int64_t>(d)) > 0;
    add_dim({reduced ? &shape.reduced : &shape.kept}, x.shape[d], {strides[d]});
    (reduced ? shape.terms : shape.results) *= x.shape[d];
  }
  bool by_blocks = reduces_by_blocks(shape);
  Kernel kernel =
      find_kernel(device, context.op.name(), by_blocks ? "rows" : "columns", name(x.dtype));
  return Launch{launch_name(context), 0, [=, &device](const LaunchArguments& a) {
                  if (!by_blocks)
                    return launch_threads(device, kernel, shape.results, a.inputs[0], a.outputs[0],
                                          shape);
                  if (shape.results == 0) return;
                  device.launch(kernel, {static_cast<unsigned>(shape.results)}, {kBlockThreads}, 0,
                                a.inputs[0], a.outputs[0], shape);
                }};
}

// Where operands of shapes a and b lie for each element of the result.
DotShape dot_shape(const Dot& dot, const Shape& a, const Shape& b) {
  std::vector<int64_t> strides_a = row_major_strides(a), strides_b = row_major_strides(b);
  auto contract_a = static_cast<size_t>(dot.contract_a()),
       contract_b = static_cast<size_t>(dot.contract_b());
  auto batch = static_cast<size_t>(dot.batch());
  DotShape shape;
  shape.terms = a[contract_a];
  shape.step_a = strides_a[contract_a];
  shape.step_b = strides_b[contract_b];
  for (size_t d = 0; d < batch; ++d) {
    add_dim({&shape.batch_a, &shape.batch_b}, a[d], {strides_a[d], strides_b[d]});
    shape.batches *= a[d];
  }
  for (size_t d = batch; d < a.size(); ++d) {
    if (d == contract_a) continue;
    add_dim({&shape.rows}, a[d], {strides_a[d]});
    shape.row_count *= a[d];
  }
  for (size_t d = batch; d < b.size(); ++d) {
    if (d == contract_b) continue;
    add_dim({&shape.columns}, b[d], {strides_b[d]});
    shape.column_count *= b[d];
  }
  shape.result_stride = shape.column_count;
  return shape;
}

// A product of two matrices, for which there are better kernels.
Prepared prepare_matrix_product(const PrepareContext& context, Device& device) {
  const auto& dot = static_cast<const Dot&>(context.op);
  const TensorType &a = context.inputs[0], &b = context.inputs[1];
  DType result = context.outputs[0].dtype;
  if (dot.batch() != 0 || a.shape.size() != 2 || b.shape.size() != 2 || a.dtype != DType::kBF16 ||
      (result != DType::kF32 && result != DType::kBF16))
    return cat("takes two matrices of bf16");
  bool transpose_a = dot.contract_a() == 0, transpose_b = dot.contract_b() == 1;
  auto product = own_product(device, {.m = a.shape[transpose_a ? 1 : 0],
                                      .n = b.shape[transpose_b ? 0 : 1],
                                      .k = a.shape[transpose_a ? 0 : 1],
                                      .transpose_a = transpose_a,
                                      .transpose_b = transpose_b,
                                      .operands = a.dtype,
                                      .result = result,
                                      .lda = a.shape[1],
                                      .ldb = b.shape[1],
                                      .ldc = b.shape[transpose_b ? 0 : 1],
                                      .align_a = alignment_of(a.bytes()),
                                      .align_b = alignment_of(b.bytes())});
  return Launch{product.kernel, product.workspace_bytes, [product](const LaunchArguments& l) {
                  product.run({l.inputs[0], l.inputs[1], l.outputs[0], nullptr, l.workspace});
                }};
}

Prepared prepare_dot(const PrepareContext& context, Device& device) {
  DType operands = context.inputs[0].dtype, result = context.outputs[0].dtype;
  if (!computes(operands) || !computes(result))
    return not_taken(context, computes(operands) ? result : operands);
  DotShape shape = dot_shape(static_cast<const Dot&>(context.op), context.inputs[0].shape,
                             context.inputs[1].shape);
  Kernel kernel = find_kernel(device, "dot", name(operands), name(result));
  return Launch{launch_name(context), 0, [=, &device](const LaunchArguments& a) {
                  launch_dot(device, kernel, shape, a.inputs[0], a.inputs[1], nullptr,
                             a.outputs[0]);
                }};
}

Prepared prepare_scatter_add(const PrepareContext& context, Device& device) {
  const TensorType &ids = context.inputs[0], &updates = context.inputs[1], &y = context.outputs[0];
  bool taken =
      (computes(updates.dtype) && computes(y.dtype)) || (counts(updates.dtype) && counts(y.dtype));
  if (!taken)
    return cat("cuda scatter_add has no kernel for ", name(updates.dtype), " into ", name(y.dtype));
  return row_scatter(device, context, IdCheck(device, context, ids, y.shape[0]));
}

}  // namespace

void launch_dot(Device& device, const Kernel& kernel, const DotShape& shape, const void* a,
                const void* b, const void* bias, void* y) {
  if (shape.batches == 0 || shape.row_count == 0 || shape.column_count == 0) return;
  constexpr int64_t kTile = 64, kMostBatches = 65535;
  device.launch(kernel,
                {blocks_for(shape.row_count, kTile), blocks_for(shape.column_count, kTile),
                 static_cast<unsigned>(std::min(shape.batches, kMostBatches))},
                {kBlockThreads}, 0, a, b, bias, y, shape);
}

void copy_unless_shared(Device& device, const void* operand, void* result, int64_t bytes) {
  if (operand != result && bytes > 0) device.copy(result, operand, bytes);
}

Prepared row_scatter(Device& device, const PrepareContext& context, IdCheck check, bool adds) {
  const TensorType &ids = context.inputs[0], &updates = context.inputs[1], &y = context.outputs[0];
  const int64_t count = ids.elements(), rows = y.shape[0],
                width = rows > 0 ? y.elements() / rows : 0;
  constexpr int64_t kMost = 0xffffffff;
  if (count > kMost || rows > kMost)
    return cat("cuda ", context.op.name(), " takes fewer than 2^32 ids and rows, not ", count,
               " and ", rows);
  const Kernel sort = find_kernel(device, "sort_ids", name(ids.dtype)),
               merge = find_kernel(device, "merge_sorted_ids"),
               sum = find_kernel(device, "scatter", name(updates.dtype), name(y.dtype)),
               sum_parts = find_kernel(device, "scatter_parts", name(y.dtype));
  // Sorted ids twice, for those that are merged; then the sums of pieces.
  const int64_t keys_bytes = aligned_bytes(count * 8),
                parts_begin = (count > kSortedBlock ? 2 : 1) * keys_bytes,
                parts = count > kScatterPiece ? blocks_for(count, kScatterPiece) * 2 : 0,
                part_bytes = width * std::max<int64_t>(4, size_of(y.dtype));
  const unsigned threads =
      std::clamp<unsigned>(blocks_for(width, kElementsAThread * 32) * 32, 32, kBlockThreads);
  return Launch{launch_name(context), parts_begin + aligned_bytes(parts * part_bytes),
                [=, &device, bytes = y.bytes()](const LaunchArguments& a) {
                  check.run(a.inputs[0]);
                  if (bytes == 0) return;
                  if (adds)
                    copy_unless_shared(device, a.inputs[2], a.outputs[0], bytes);
                  else
                    device.fill(a.outputs[0], bytes);
                  if (count == 0) return;
                  auto* keys = static_cast<std::byte*>(a.workspace);
                  auto* merged = keys + keys_bytes;
                  void* sums = keys + parts_begin;
                  device.launch(sort, {blocks_for(count, kSortedBlock)}, {kBlockThreads}, 0,
                                a.inputs[0], keys, count, rows);
                  for (int64_t run = kSortedBlock; run < count; run *= 2) {
                    launch_threads(device, merge, count, keys, merged, count, run);
                    std::swap(keys, merged);
                  }
                  const auto blocks = static_cast<unsigned>(count);
                  device.launch(sum, {blocks}, {threads}, 0, keys, a.inputs[1], sums, a.outputs[0],
                                count, width);
                  if (parts > 0)
                    device.launch(sum_parts, {blocks}, {threads}, 0, keys, sums, a.outputs[0],
                                  count, width);
                }};
}

void register_summing_primitives(KernelTable& table, Device& device) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op, [prepare, &device](const PrepareContext& context) -> Prepared {
      size_t dims = context.outputs[0].shape.size();
      for (const TensorType& type : context.inputs) dims = std::max(dims, type.shape.size());
      if (dims > kMaxDims)
        return cat("cuda ", context.op.name(), " takes up to ", kMaxDims, " dims, not ", dims);
      return prepare(context, device);
    });
  };
  add_to_table("reduce_sum", prepare_reduce);
  add_to_table("reduce_max", prepare_reduce);
  add_to_table("dot", prepare_matrix_product);
  add_to_table("dot", prepare_dot);
  add_to_table("scatter_add", prepare_scatter_add);
}

}  // namespace tessera::cuda
