#include "backends/cuda/composite_kernels.h"
#include "base/ignore_index.h"
#include "ops/composite/vocabulary_parallel.h"

namespace tessera::cuda {
namespace {

// How the products of a head are made, and the rows of logits that exist at a time.
struct HeadProductsBy {
  MakeProduct make;
  int64_t rows;
};

constexpr HeadGradients kNoGradients{false, false};

// A chunk of rows of logits in f32, `stride` from row to row, over which their gradient goes.
struct HeadRows {
  int64_t begin, rows;
  void* logits;
  int64_t stride;
};

// The products of a head in chunks of rows: logits and, from their gradient, dx of the rows and
// their share of dw.
class HeadProducts {
 public:
  // x and w are the first two operands, what dw is added to is the last; dx and dw the first
  // outputs, as far as there are any.
  HeadProducts(const PrepareContext& c, HeadGradients gradients, Device& device,
               const HeadProductsBy& by)
      : device_(device),
        gradients_(gradients),
        rows_(c.inputs[0].shape[0]),
        width_(c.inputs[0].shape[1]),
        classes_(c.inputs[1].shape[0]),
        stride_(std::max<int64_t>(8, (classes_ + 7) / 8 * 8)) {
    DType dtype = c.inputs[0].dtype;
    row_bytes_ = width_ * size_of(dtype);
    // x and dx begin at whole chunks of rows.
    const int64_t align_w = alignment_of(c.inputs[1].bytes()),
                  align_x = alignment_of(rows_ * row_bytes_);
    const int64_t most = by.rows, gradient_stride = stride_ * 4 / size_of(dtype);
    int64_t product_bytes = 0;
    auto made = [&](const ProductProblem& problem) {
      std::optional<Product> other = by.make ? by.make(problem) : std::nullopt;
      Product product = other ? *other : own_product(device, problem);
      product_bytes = std::max(product_bytes, product.workspace_bytes);
      return product;
    };
    for (int64_t begin = 0; begin < rows_; begin += most) {
      int64_t n = std::min(most, rows_ - begin);
      Chunk chunk{begin, n, {}, {}, {}};
      chunk.logits = made({.m = n,
                           .n = classes_,
                           .k = width_,
                           .transpose_b = true,
                           .operands = dtype,
                           .result = DType::kF32,
                           .lda = width_,
                           .ldb = width_,
                           .ldc = stride_,
                           .align_a = align_x,
                           .align_b = align_w});
      if (gradients.dx)
        chunk.dx = made({.m = n,
                         .n = width_,
                         .k = classes_,
                         .operands = dtype,
                         .result = dtype,
                         .lda = gradient_stride,
                         .ldb = width_,
                         .ldc = width_,
                         .align_b = align_w,
                         .align_c = align_x});
      if (gradients.dw)
        chunk.dw = made({.m = classes_,
                         .n = width_,
                         .k = n,
                         .transpose_a = true,
                         .operands = dtype,
                         .result = DType::kF32,
                         .lda = gradient_stride,
                         .ldb = width_,
                         .ldc = width_,
                         .accumulate = begin > 0 || gradients.adds,
                         .align_b = align_x,
                         .align_c = alignment_of(classes_ * width_ * 4)});
      chunks_.push_back(std::move(chunk));
    }
    products_ = aligned_bytes(std::min(most, rows_) * stride_ * 4);
    workspace_bytes_ = products_ + aligned_bytes(product_bytes);
  }

  int64_t rows() const { return rows_; }
  int64_t classes() const { return classes_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }  // the first bytes of a launch's

  // body(HeadRows) where a chunk's logits exist; with a gradient it must leave that behind.
  template <class Body>
  void run(const LaunchArguments& a, const Body& body) const {
    auto* dx = gradients_.dx ? a.output<std::byte>(0) : nullptr;
    void* dw = gradients_.dw ? a.outputs[gradients_.dx ? 1 : 0] : nullptr;
    auto* logits = static_cast<std::byte*>(a.workspace);
    void* scratch = logits + products_;
    const int64_t dw_bytes = classes_ * width_ * 4;
    if (gradients_.adds)
      copy_unless_shared(device_, a.inputs.back(), dw, dw_bytes);
    else if (rows_ == 0 && dw && dw_bytes > 0)
      device_.fill(dw, dw_bytes);
    for (const Chunk& chunk : chunks_) {
      const std::byte* x = a.input<std::byte>(0) + chunk.begin * row_bytes_;
      chunk.logits.run({x, a.inputs[1], logits, nullptr, scratch});
      body(HeadRows{chunk.begin, chunk.rows, logits, stride_});
      if (dx) chunk.dx.run({logits, a.inputs[1], dx + chunk.begin * row_bytes_, nullptr, scratch});
      if (dw) chunk.dw.run({logits, x, dw, nullptr, scratch});
    }
  }

 private:
  struct Chunk {
    int64_t begin, rows;
    Product logits, dx, dw;
  };
  Device& device_;
  HeadGradients gradients_;
  int64_t rows_, width_, classes_, stride_, row_bytes_ = 0;
  std::vector<Chunk> chunks_;
  // The logits are at the workspace's start, that of the products at this offset.
  int64_t products_ = 0, workspace_bytes_ = 0;
};

Prepared prepare_cross_entropy(const PrepareContext& c, HeadGradients gradients, Device& device,
                               const HeadProductsBy& by) {
  auto products = std::make_shared<HeadProducts>(c, gradients, device, by);
  int64_t rows = products->rows(), losses = products->workspace_bytes(),
          squares = losses + aligned_bytes(rows * 4);
  bool backward = c.inputs.size() > 3;
  // A row is read a second time for its gradient: what fits stays in shared memory.
  constexpr int64_t kLongRow = 16384, kOwnShared = 10 * 1024;
  constexpr unsigned kKeepingThreads = 1024;
  const bool keeps = backward && products->classes() >= kLongRow;
  const int64_t kept =
      keeps ? std::min(products->classes(), (device.shared_bytes() - kOwnShared) / 4) / 8 * 8 : 0;
  const unsigned threads = keeps ? kKeepingThreads : static_cast<unsigned>(kBlockThreads);
  Kernel of_rows = find_kernel(device, keeps ? "cross_entropy_keeping" : "cross_entropy",
                               name(c.inputs[0].dtype)),
         sum = find_kernel(device, "sum_all"), sum_squares = find_kernel(device, "sum_all_squares");
  IdCheck check(device, c, c.inputs[2], c.inputs[1].shape[0], kIgnoreIndex);
  auto outputs = static_cast<size_t>(gradients.count());
  return Launch{
      launch_name(c), squares + aligned_bytes(rows * 4), [=, &device](const LaunchArguments& a) {
        auto* scratch = static_cast<std::byte*>(a.workspace);
        auto *loss_of = reinterpret_cast<float*>(scratch + losses),
             *lse_of = reinterpret_cast<float*>(scratch + squares);
        const void *dloss = backward ? a.inputs[3] : nullptr,
                   *dsquares = backward ? a.inputs[4] : nullptr;
        check.run(a.inputs[2]);
        products->run(a, [&](const HeadRows& r) {
          device.launch(of_rows, {static_cast<unsigned>(r.rows)}, {threads},
                        static_cast<int>(kept * 4), r.logits, a.input<int32_t>(2) + r.begin, dloss,
                        dsquares, loss_of + r.begin, lse_of + r.begin, products->classes(),
                        r.stride, kept, kIgnoreIndex);
        });
        device.launch(sum, {1}, {kBlockThreads}, 0, loss_of, a.outputs[outputs], rows);
        device.launch(sum_squares, {1}, {kBlockThreads}, 0, lse_of, a.outputs[outputs + 1], rows);
      }};
}

Prepared prepare_log_sum_exp(const PrepareContext& c, Device& device, const HeadProductsBy& by) {
  auto products = std::make_shared<HeadProducts>(c, kNoGradients, device, by);
  Kernel kernel = find_kernel(device, "log_sum_exp_rows");
  return Launch{
      launch_name(c), products->workspace_bytes(), [=, &device](const LaunchArguments& a) {
        products->run(a, [&](const HeadRows& r) {
          device.launch(kernel, {static_cast<unsigned>(r.rows)}, {kBlockThreads}, 0, r.logits,
                        a.input<int32_t>(2) + r.begin, a.inputs[3], a.output<float>(0) + r.begin,
                        a.output<float>(1) + r.begin, products->classes(), r.stride);
        });
      }};
}

Prepared prepare_log_sum_exp_backward(const PrepareContext& c, Device& device,
                                      const HeadProductsBy& by) {
  auto gradients = static_cast<const LinearLogSumExpBackward&>(c.op).gradients();
  auto products = std::make_shared<HeadProducts>(c, gradients, device, by);
  Kernel kernel = find_kernel(device, "log_sum_exp_gradient", name(c.inputs[0].dtype));
  return Launch{launch_name(c), products->workspace_bytes(),
                [=, &device](const LaunchArguments& a) {
                  products->run(a, [&](const HeadRows& r) {
                    device.launch(kernel, {static_cast<unsigned>(r.rows)}, {kBlockThreads}, 0,
                                  r.logits, a.input<int32_t>(2) + r.begin, a.inputs[3],
                                  a.input<float>(4) + r.begin, a.input<float>(5) + r.begin,
                                  a.input<float>(6) + r.begin, products->classes(), r.stride);
                  });
                }};
}

Prepared prepare_sum_squares(const PrepareContext& c, Device& device) {
  constexpr int64_t kChunk = 8192;  // of kernels/cross_entropy.cu
  int64_t n = c.inputs[0].elements(), blocks = (n + kChunk - 1) / kChunk;
  Kernel of_chunks = find_kernel(device, "sum_squares", name(c.inputs[0].dtype)),
         sum = find_kernel(device, "sum_all");
  return Launch{launch_name(c), aligned_bytes(blocks * 4), [=, &device](const LaunchArguments& a) {
                  if (blocks > 0)
                    device.launch(of_chunks, {static_cast<unsigned>(blocks)}, {kBlockThreads}, 0,
                                  a.inputs[0], a.workspace, n);
                  device.launch(sum, {1}, {kBlockThreads}, 0, a.workspace, a.outputs[0], blocks);
                }};
}

}  // namespace

void register_head(KernelTable& table, Device& device, const MakeProduct& product,
                   int64_t head_rows) {
  const HeadProductsBy by{product, head_rows};
  table.add("linear_cross_entropy", for_floats(0, [=, &device](const PrepareContext& c) {
              return prepare_cross_entropy(c, kNoGradients, device, by);
            }));
  auto backward = for_floats(0, [=, &device](const PrepareContext& c) {
    auto gradients = static_cast<const LinearCrossEntropyBackward&>(c.op).gradients();
    return prepare_cross_entropy(c, gradients, device, by);
  });
  table.add("linear_cross_entropy_backward", backward);
  table.add("linear_cross_entropy_backward_add", backward);
  table.add("linear_log_sum_exp", for_floats(0, [=, &device](const PrepareContext& c) {
              return prepare_log_sum_exp(c, device, by);
            }));
  auto backward_of_part = for_floats(0, [=, &device](const PrepareContext& c) {
    return prepare_log_sum_exp_backward(c, device, by);
  });
  table.add("linear_log_sum_exp_backward", backward_of_part);
  table.add("linear_log_sum_exp_backward_add", backward_of_part);
  table.add("sum_squares", for_floats(0, [&device](const PrepareContext& c) {
              return prepare_sum_squares(c, device);
            }));
  table.add("count_targets", [&device](const PrepareContext& c) -> Prepared {
    Kernel kernel = find_kernel(device, "count_unequal");
    return Launch{launch_name(c), 0,
                  [=, &device, n = c.inputs[0].elements()](const LaunchArguments& a) {
                    device.launch(kernel, {1}, {kBlockThreads}, 0, a.inputs[0], a.outputs[0], n,
                                  kIgnoreIndex);
                  }};
  });
}

}  // namespace tessera::cuda
