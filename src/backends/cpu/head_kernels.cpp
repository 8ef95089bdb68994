#include <algorithm>

#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/cross_entropy.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/reduce.h"
#include "ops/composite/vocabulary_parallel.h"

namespace tessera::cpu {
namespace {

// Rows of logits that exist at a time. 1,024 rows of a 32,000 word vocabulary are 131 MB. For each
// chunk the weights are packed twice and their gradients read and written: with 512 rows a head of
// 768 x 32,000 takes 1.1 times as long on AMX, 1.04 times where products of bf16 are slower.
int64_t head_chunk(Isa isa) { return isa == Isa::kAmx ? 1024 : 512; }

// The rows that exist at a time, `stride` logits from row to row, and where their gradient goes
// (null in a forward pass): a row of it over the first bytes of the row of logits, `dlogits_stride`
// elements from row to row.
struct HeadRows {
  int64_t begin, rows;
  float* logits;
  int64_t stride;
  void* dlogits;
  int64_t dlogits_stride;
};

// Nothing but the forward pass.
constexpr HeadGradients kNoGradients{false, false};

// The products of a head in chunks of rows: logits in f32 and, from their gradient, dx of the rows
// and their share of dw.
class HeadProducts {
 public:
  // x and w are the first two operands, what dw is added to is the last; dx and dw the first
  // outputs, as far as there are any.
  HeadProducts(const PrepareContext& c, HeadGradients gradients, Isa isa, ThreadPool& pool)
      : dtype_(c.inputs[0].dtype),
        rows_(c.inputs[0].shape[0]),
        width_(c.inputs[0].shape[1]),
        classes_(c.inputs[1].shape[0]),
        stride_(aligned_bytes(classes_ * 4) / 4),
        dlogits_stride_(stride_ * 4 / size_of(dtype_)),
        gradients_(gradients),
        pool_(pool) {
    const int64_t most = head_chunk(isa);
    for (int64_t begin = 0; begin < rows_; begin += most) {
      int64_t n = std::min(most, rows_ - begin);
      Chunk chunk{begin,
                  n,
                  make_matmul({.m = n,
                               .n = classes_,
                               .k = width_,
                               .transpose_b = true,
                               .a = dtype_,
                               .b = dtype_,
                               .c = DType::kF32,
                               .lda = width_,
                               .ldb = width_,
                               .ldc = stride_},
                              isa),
                  {},
                  {}};
      if (gradients.dx) {
        chunk.dx = make_matmul({.m = n,
                                .n = width_,
                                .k = classes_,
                                .a = dtype_,
                                .b = dtype_,
                                .c = dtype_,
                                .lda = dlogits_stride_,
                                .ldb = width_,
                                .ldc = width_},
                               isa);
      }
      if (gradients.dw) {
        chunk.dw = make_matmul({.m = classes_,
                                .n = width_,
                                .k = n,
                                .transpose_a = true,
                                .a = dtype_,
                                .b = dtype_,
                                .c = DType::kF32,
                                .lda = dlogits_stride_,
                                .ldb = width_,
                                .ldc = width_,
                                .accumulate = begin > 0 || gradients.adds},
                               isa);
      }
      chunks_.push_back(chunk);
    }
    int64_t chunk_rows = std::min(most, rows_);
    matmul_ = aligned_bytes(chunk_rows * stride_ * 4);
    int64_t matmul_bytes = 0;
    for (const Chunk& chunk : chunks_) {
      for (const auto& product : {chunk.logits, chunk.dx, chunk.dw}) {
        if (product)
          matmul_bytes = std::max(matmul_bytes, product->workspace_bytes(pool.threads()));
      }
    }
    workspace_bytes_ = matmul_ + aligned_bytes(matmul_bytes);
  }

  int64_t rows() const { return rows_; }
  int64_t classes() const { return classes_; }
  DType dlogits_dtype() const { return dtype_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }  // the first bytes of a launch's

  // body(HeadRows) where a chunk's logits exist; with a gradient it must leave dlogits behind.
  template <class Body>
  void run(const LaunchArguments& a, const Body& body) const {
    auto* dx = gradients_.dx ? a.output<std::byte>(0) : nullptr;
    auto* dw = gradients_.dw ? a.output<float>(gradients_.dx) : nullptr;
    auto* scratch = static_cast<std::byte*>(a.workspace);
    int64_t row_bytes = width_ * size_of(dtype_);
    if (gradients_.adds)
      copy_unless_shared(a.inputs.back(), dw, classes_ * width_ * 4, pool_);
    else if (rows_ == 0 && dw)
      std::fill(dw, dw + classes_ * width_, 0.0f);
    // Logits and dw come again with every chunk, and go past the caches all the same: else a head
    // of 256 x 4,096 takes 1.1 times as long.
    for (const Chunk& chunk : chunks_) {
      const std::byte* x = a.input<std::byte>(0) + chunk.begin * row_bytes;
      auto* logits = reinterpret_cast<float*>(scratch);
      void* dlogits = dx || dw ? scratch : nullptr;
      chunk.logits->run(pool_, x, a.inputs[1], logits, scratch + matmul_, nullptr, kPastCaches);
      body(HeadRows{.begin = chunk.begin,
                    .rows = chunk.rows,
                    .logits = logits,
                    .stride = stride_,
                    .dlogits = dlogits,
                    .dlogits_stride = dlogits_stride_});
      if (dx) {
        chunk.dx->run(pool_, dlogits, a.inputs[1], dx + chunk.begin * row_bytes, scratch + matmul_,
                      nullptr, a.reuse_distance);
      }
      if (dw) chunk.dw->run(pool_, dlogits, x, dw, scratch + matmul_, nullptr, kPastCaches);
    }
  }

 private:
  struct Chunk {
    int64_t begin, rows;
    std::shared_ptr<const Matmul> logits, dx, dw;
  };
  DType dtype_;
  int64_t rows_, width_, classes_;
  // From row to row of the logits: a whole number of cache lines, so that they can be written past
  // the caches.
  int64_t stride_, dlogits_stride_;
  HeadGradients gradients_;
  ThreadPool& pool_;
  std::vector<Chunk> chunks_;
  // The logits are at the workspace's start, that of the products at this offset.
  int64_t matmul_, workspace_bytes_;
};

class CrossEntropyHead {
 public:
  CrossEntropyHead(const PrepareContext& c, HeadGradients gradients, Isa isa, ThreadPool& pool)
      : products_(c, gradients, isa, pool),
        sums_(static_cast<size_t>(gradients.count())),
        isa_(isa),
        pool_(pool) {
    int64_t rows = products_.rows();
    lse_ = products_.workspace_bytes();
    losses_ = lse_ + aligned_bytes(rows * 4);
    partial_sums_ = losses_ + aligned_bytes(rows * 4);
    workspace_bytes_ = partial_sums_ + aligned_bytes(reduce_workspace(rows));
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // The cotangents are null for the forward pass alone.
  void run(const LaunchArguments& a, const float* dloss, const float* dsquares) const {
    auto* scratch = static_cast<std::byte*>(a.workspace);
    auto* lse = reinterpret_cast<float*>(scratch + lse_);
    auto* losses = reinterpret_cast<float*>(scratch + losses_);
    products_.run(a, [&](const HeadRows& r) {
      cross_entropy_rows({.dtype = DType::kF32,
                          .logits = r.logits,
                          .targets = a.input<int32_t>(2) + r.begin,
                          .lse = lse + r.begin,
                          .loss = losses + r.begin,
                          .rows = r.rows,
                          .classes = products_.classes(),
                          .dlogits = r.dlogits,
                          .dlogits_dtype = products_.dlogits_dtype(),
                          .scale = dloss,
                          .square_scale = dsquares,
                          .dlogits_stride = r.dlogits_stride,
                          .logits_stride = r.stride},
                         isa_, pool_);
    });
    auto* partial = reinterpret_cast<double*>(scratch + partial_sums_);
    int64_t rows = products_.rows();
    *a.output<float>(sums_) = static_cast<float>(sum(losses, rows, partial, isa_, pool_));
    *a.output<float>(sums_ + 1) =
        static_cast<float>(sum_of_squares(lse, rows, partial, isa_, pool_));
  }

 private:
  HeadProducts products_;
  size_t sums_;  // the first output behind the gradients
  Isa isa_;
  ThreadPool& pool_;
  // Offsets into the workspace.
  int64_t lse_, losses_, partial_sums_, workspace_bytes_;
};

void register_cross_entropy(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("linear_cross_entropy",
            for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              auto head = std::make_shared<CrossEntropyHead>(c, kNoGradients, isa, pool);
              return Launch{cat("linear_cross_entropy ", name(isa)), head->workspace_bytes(),
                            [head](const LaunchArguments& a) { head->run(a, nullptr, nullptr); }};
            }));
  const Prepare backward = for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
    HeadGradients gradients = static_cast<const LinearCrossEntropyBackward&>(c.op).gradients();
    auto head = std::make_shared<CrossEntropyHead>(c, gradients, isa, pool);
    return Launch{
        kernel_name(c.op.name(), isa), head->workspace_bytes(),
        [head](const LaunchArguments& a) { head->run(a, a.input<float>(3), a.input<float>(4)); }};
  });
  table.add("linear_cross_entropy_backward", backward);
  table.add("linear_cross_entropy_backward_add", backward);
}

// How many of the head's columns are counted, known only when the kernel runs.
int64_t valid_classes(const LaunchArguments& a, const HeadProducts& products) {
  return std::clamp<int64_t>(*a.input<int32_t>(3), 0, products.classes());
}

void register_log_sum_exp(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("linear_log_sum_exp", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              auto products = std::make_shared<HeadProducts>(c, kNoGradients, isa, pool);
              return Launch{
                  cat("linear_log_sum_exp ", name(isa)), products->workspace_bytes(),
                  [products, isa, &pool](const LaunchArguments& a) {
                    int64_t valid = valid_classes(a, *products);
                    products->run(a, [&](const HeadRows& r) {
                      log_sum_exp_rows(
                          {r.logits, a.input<int32_t>(2) + r.begin, a.output<float>(0) + r.begin,
                           a.output<float>(1) + r.begin, r.rows, valid, r.stride},
                          isa, pool);
                    });
                  }};
            }));
  const Prepare backward = for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
    HeadGradients gradients = static_cast<const LinearLogSumExpBackward&>(c.op).gradients();
    auto products = std::make_shared<HeadProducts>(c, gradients, isa, pool);
    return Launch{kernel_name(c.op.name(), isa), products->workspace_bytes(),
                  [products, isa, &pool](const LaunchArguments& a) {
                    int64_t valid = valid_classes(a, *products);
                    products->run(a, [&](const HeadRows& r) {
                      log_sum_exp_gradient_rows(
                          {r.logits, a.input<int32_t>(2) + r.begin, a.input<float>(4) + r.begin,
                           a.input<float>(5) + r.begin, a.input<float>(6) + r.begin, r.dlogits,
                           products->dlogits_dtype(), r.rows, valid, r.stride, r.dlogits_stride},
                          isa, pool);
                    });
                  }};
  });
  table.add("linear_log_sum_exp_backward", backward);
  table.add("linear_log_sum_exp_backward_add", backward);
}

}  // namespace

void register_head(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_cross_entropy(table, isa, pool);
  register_log_sum_exp(table, isa, pool);
}

}  // namespace tessera::cpu
