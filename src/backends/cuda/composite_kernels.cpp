#include "backends/cuda/composite_kernels.h"

#include "ops/composite/embedding.h"
#include "ops/composite/linear.h"

namespace tessera::cuda {
namespace {

void register_cache_write(KernelTable& table, Device& device) {
  table.add("cache_write", [&device](const PrepareContext& c) -> Prepared {
    const TensorType &cache = c.inputs[0], &x = c.inputs[1];
    int64_t tokens = x.shape[1], count = x.shape[0] * tokens, rows = cache.shape[0],
            capacity = cache.shape[1], token_bytes = count == 0 ? 0 : x.bytes() / count;
    std::vector<Kernel> kernels;
    for (int64_t unit = 1; unit <= 16; unit *= 2)
      kernels.push_back(find_kernel(device, cat("cache_write_", unit)));
    return Launch{launch_name(c), 0, [=, &device, bytes = cache.bytes()](const LaunchArguments& a) {
                    copy_unless_shared(device, a.inputs[0], a.outputs[0], bytes);
                    int64_t unit = largest_unit(token_bytes, a.inputs[1], a.outputs[0]),
                            width = token_bytes / unit;
                    size_t which = 0;
                    while ((int64_t{1} << which) < unit) ++which;
                    launch_threads(device, kernels[which], count * width, a.inputs[1], a.inputs[2],
                                   a.inputs[3], a.outputs[0], count * width, tokens, width, rows,
                                   capacity);
                  }};
  });
}

}  // namespace

void register_embedding(KernelTable& table, Device& device) {
  table.add("embedding", [&device](const PrepareContext& c) -> Prepared {
    // A part of a table has rows for some of the ids only.
    const bool partial = static_cast<const Embedding&>(c.op).partial();
    return row_gather(device, launch_name(c), c.inputs[1], c.inputs[0], 1, 0,
                      partial ? IdCheck() : IdCheck(device, c, c.inputs[0], c.inputs[1].shape[0]));
  });
  auto backward = for_floats(1, [&device](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const EmbeddingBackward&>(c.op);
    return row_scatter(
        device, c,
        op.partial() ? IdCheck() : IdCheck(device, c, c.inputs[0], c.outputs[0].shape[0]),
        op.adds());
  });
  table.add("embedding_backward", backward);
  table.add("embedding_backward_add", backward);
  register_cache_write(table, device);
}

void register_linear(KernelTable& table, Device& device, const MakeProduct& make) {
  auto launch = [&device, make](ProductProblem problem, const PrepareContext& c) -> Prepared {
    problem.align_a = alignment_of(c.inputs[0].bytes());
    problem.align_b = alignment_of(c.inputs[1].bytes());
    problem.align_c = alignment_of(c.outputs[0].bytes());
    std::optional<Product> made = make ? make(problem) : std::nullopt;
    Product product = made ? *made : own_product(device, problem);
    return Launch{
        product.kernel, product.workspace_bytes,
        [&device, product, problem, bytes = c.outputs[0].bytes()](const LaunchArguments& a) {
          if (problem.accumulate) copy_unless_shared(device, a.inputs[2], a.outputs[0], bytes);
          product.run({a.inputs[0], a.inputs[1], a.outputs[0], problem.bias ? a.inputs[2] : nullptr,
                       a.workspace});
        }};
  };
  table.add("linear", for_floats(0, [launch](const PrepareContext& c) {
              DType d = c.inputs[0].dtype;
              int64_t n = c.inputs[1].shape[0], k = c.inputs[1].shape[1];
              return launch({.m = c.outputs[0].elements() / std::max<int64_t>(n, 1),
                             .n = n,
                             .k = k,
                             .transpose_b = true,
                             .operands = d,
                             .result = d,
                             .lda = k,
                             .ldb = k,
                             .ldc = n,
                             .bias = c.inputs.size() == 3},
                            c);
            }));
  for (bool adds : {false, true}) {
    table.add(adds ? "linear_dx_add" : "linear_dx",
              for_floats(0, [launch, adds](const PrepareContext& c) {
                DType d = c.inputs[0].dtype;
                int64_t k = c.inputs[1].shape[0], n = c.inputs[1].shape[1];
                return launch({.m = c.outputs[0].elements() / std::max<int64_t>(n, 1),
                               .n = n,
                               .k = k,
                               .operands = d,
                               .result = d,
                               .lda = k,
                               .ldb = n,
                               .ldc = n,
                               .accumulate = adds},
                              c);
              }));
    table.add(adds ? "linear_dw_add" : "linear_dw",
              for_floats(0, [launch, adds](const PrepareContext& c) {
                DType d = c.inputs[0].dtype;
                int64_t m = c.inputs[0].shape.back(), n = c.inputs[1].shape.back();
                return launch({.m = m,
                               .n = n,
                               .k = m > 0 ? rows_of(c.inputs[0]) : 0,
                               .transpose_a = true,
                               .operands = d,
                               .result = DType::kF32,
                               .lda = m,
                               .ldb = n,
                               .ldc = n,
                               .accumulate = adds},
                              c);
              }));
  }
}

void register_composite_kernels(KernelTable& table, Device& device, MakeProduct product,
                                int64_t head_rows, Prepare attention, int64_t slope_bytes) {
  register_embedding(table, device);
  register_norms(table, device);
  register_linear(table, device, product);
  register_activations(table, device);
  register_attention(table, device, attention, slope_bytes);
  register_head(table, device, product, head_rows);
  register_optimizers(table, device);
}

}  // namespace tessera::cuda
