#include "bench/hand_written_block.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/rms_norm.h"
#include "backends/cpu/kernels/rope.h"
#include "backends/cpu/kernels/swiglu.h"
#include "backends/cpu/kernels/tiles.h"

namespace tessera::bench {
namespace {

cpu::AttentionProblem attention_problem(const BlockShape& s, DType dtype) {
  double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  return {.dtype = dtype,
          .batch = s.batch,
          .tokens = s.tokens,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .causal = true,
          .scale = static_cast<float>(scale)};
}

}  // namespace

HandWrittenBlock::HandWrittenBlock(const BlockShape& shape, DType dtype, const float* masters,
                                   int64_t size, std::span<const int64_t> offsets, cpu::Isa isa,
                                   ThreadPool& pool)
    : s_(shape),
      dtype_(dtype),
      masters_(masters),
      size_(size),
      offsets_(offsets.begin(), offsets.end()),
      isa_(isa),
      pool_(pool) {
  int64_t attention_width = s_.heads * s_.head_dim, kv_width = s_.kv_heads * s_.head_dim;
  query_ = make_linear(attention_width, s_.width);
  key_value_ = make_linear(kv_width, s_.width);
  output_ = make_linear(s_.width, attention_width);
  gate_up_ = make_linear(s_.hidden, s_.width);
  down_ = make_linear(s_.width, s_.hidden);
  make_rotary_table();
  memory_ = HostBuffer(lay_out(nullptr));
  lay_out(memory_.data());
}

HandWrittenBlock::Linear HandWrittenBlock::make_linear(int64_t out, int64_t in) {
  int64_t n = s_.rows();
  DType d = dtype_, f32 = DType::kF32;
  auto dx = [&](bool adds) {
    return cpu::make_matmul({.m = n,
                             .n = in,
                             .k = out,
                             .a = d,
                             .b = d,
                             .c = d,
                             .lda = out,
                             .ldb = in,
                             .ldc = in,
                             .accumulate = adds},
                            isa_);
  };
  return {cpu::make_matmul({.m = n,
                            .n = out,
                            .k = in,
                            .transpose_b = true,
                            .a = d,
                            .b = d,
                            .c = d,
                            .lda = in,
                            .ldb = in,
                            .ldc = out},
                           isa_),
          dx(false), dx(true),
          cpu::make_matmul({.m = out,
                            .n = in,
                            .k = n,
                            .transpose_a = true,
                            .a = d,
                            .b = d,
                            .c = f32,
                            .lda = out,
                            .ldb = in,
                            .ldc = in},
                           isa_)};
}

void HandWrittenBlock::make_rotary_table() {
  for (int64_t t = 0; t < s_.tokens; ++t) {
    for (int64_t i = 0; i < s_.head_dim / 2; ++i) {
      double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(s_.head_dim);
      float angle = static_cast<float>(t) * static_cast<float>(std::pow(kRopeTheta, exponent));
      cos_.push_back(std::cos(angle));
      sin_.push_back(std::sin(angle));
    }
  }
}

int64_t HandWrittenBlock::workspace_bytes() const {
  cpu::AttentionProblem problem = attention_problem(s_, dtype_);
  int64_t most = std::max({cpu::attention_forward_workspace(problem, isa_, pool_.threads()),
                           cpu::attention_backward_workspace(problem, isa_, pool_.threads()),
                           cpu::rms_norm_backward_workspace(s_.rows(), s_.width)});
  for (const Linear& linear : {query_, key_value_, output_, gate_up_, down_}) {
    for (const auto& product : {linear.y, linear.dx, linear.dx_add, linear.dw}) {
      most = std::max(most, product->workspace_bytes(pool_.threads()));
    }
  }
  return most;
}

int64_t HandWrittenBlock::lay_out(std::byte* begin) {
  int64_t end = 0;
  auto place = [&]<class T>(T** pointer, int64_t bytes) {
    if (begin) *pointer = reinterpret_cast<T*>(begin + end);
    end += cpu::ceil_div(bytes, int64_t{64}) * 64;
  };
  int64_t n = s_.rows(), element = size_of(dtype_);
  int64_t model = n * s_.width * element;                      // [N, E]
  int64_t heads = n * s_.heads * s_.head_dim * element;        // [N, H*D]
  int64_t kv_heads = n * s_.kv_heads * s_.head_dim * element;  // [N, K*D]
  int64_t hidden = n * s_.hidden * element;                    // [N, F]
  if (dtype_ != DType::kF32) place(&weights_, size_ * element);
  place(&gradients_, size_ * 4);
  for (void** p : {&n1_, &h_, &n2_, &y_, &dh_, &dx_}) place(p, model);
  for (void** p : {&q_, &o_, &dq_, &do_}) place(p, heads);
  for (void** p : {&k_, &v_, &dk_, &dv_}) place(p, kv_heads);
  for (void** p : {&gate_, &up_, &s_out_, &d_hidden_}) place(p, hidden);
  for (float** p : {&rstd1_, &rstd2_}) place(p, n * 4);
  place(&lse_, n * s_.heads * 4);  // [B, H, T]
  place(&workspace_, workspace_bytes());
  return end;
}

const void* HandWrittenBlock::weight(Parameter p) const {
  int64_t offset = offsets_[static_cast<size_t>(p)];
  if (dtype_ == DType::kF32) return masters_ + offset;
  return static_cast<const BF16*>(weights_) + offset;
}

void HandWrittenBlock::multiply(const cpu::Matmul& product, const void* a, const void* b, void* c) {
  product.run(pool_, a, b, c, workspace_);
}

void HandWrittenBlock::rotate(void* x, int64_t heads, bool inverse) {
  int64_t stride = heads * s_.head_dim;
  cpu::rope({.dtype = dtype_,
             .x = x,
             .y = x,
             .cos = cos_.data(),
             .sin = sin_.data(),
             .batch = s_.batch,
             .tokens = s_.tokens,
             .heads = heads,
             .width = s_.head_dim,
             .rotary = s_.head_dim,
             .x_stride = stride,
             .y_stride = stride,
             .inverse = inverse},
            isa_, pool_);
}

void HandWrittenBlock::norm(const void* x, Parameter w, void* y, float* rstd) {
  cpu::rms_norm_forward({.dtype = dtype_,
                         .x = x,
                         .w = weight(w),
                         .y = y,
                         .rstd = rstd,
                         .rows = s_.rows(),
                         .width = s_.width,
                         .epsilon = kNormEpsilon},
                        isa_, pool_);
}

void HandWrittenBlock::norm_backward(const void* x, Parameter w, const float* rstd,
                                     const void* added, void* dy_to_dx) {
  cpu::rms_norm_backward({.dtype = dtype_,
                          .x = x,
                          .w = weight(w),
                          .rstd = rstd,
                          .dy = dy_to_dx,
                          .added = added,
                          .dx = dy_to_dx,
                          .dw = gradient(w),
                          .workspace = static_cast<float*>(workspace_),
                          .rows = s_.rows(),
                          .width = s_.width},
                         isa_, pool_);
}

void HandWrittenBlock::step(const void* x, const void* dy) {
  if (dtype_ != DType::kF32) {
    cpu::cast_to_bf16(masters_, static_cast<BF16*>(weights_), size_, isa_, pool_);
  }
  forward(x);
  backward(x, dy);
}

void HandWrittenBlock::forward(const void* x) {
  int64_t elements = s_.rows() * s_.width, hidden = s_.hidden;
  int64_t q_stride = s_.heads * s_.head_dim, kv_stride = s_.kv_heads * s_.head_dim;
  norm(x, kNorm1, n1_, rstd1_);                      // [N, E]
  multiply(*query_.y, n1_, weight(kQuery), q_);      // [N, H*D]
  multiply(*key_value_.y, n1_, weight(kKey), k_);    // [N, K*D]
  multiply(*key_value_.y, n1_, weight(kValue), v_);  // [N, K*D]
  rotate(q_, s_.heads, false);                       // [N, H*D]
  rotate(k_, s_.kv_heads, false);                    // [N, K*D]
  cpu::attention_forward({.problem = attention_problem(s_, dtype_),
                          .q = q_,
                          .k = k_,
                          .v = v_,
                          .o = o_,
                          .lse = lse_,
                          .q_stride = q_stride,
                          .k_stride = kv_stride,
                          .v_stride = kv_stride,
                          .o_stride = q_stride,
                          .workspace = workspace_},
                         isa_, pool_);                 // [N, H*D]
  multiply(*output_.y, o_, weight(kOutput), h_);       // [N, E]
  cpu::add(dtype_, x, h_, h_, elements, isa_, pool_);  // [N, E]
  norm(h_, kNorm2, n2_, rstd2_);                       // [N, E]
  multiply(*gate_up_.y, n2_, weight(kGate), gate_);    // [N, F]
  multiply(*gate_up_.y, n2_, weight(kUp), up_);        // [N, F]
  cpu::swiglu_forward({.dtype = dtype_,
                       .gate = gate_,
                       .up = up_,
                       .y = s_out_,
                       .rows = s_.rows(),
                       .width = hidden,
                       .gate_stride = hidden,
                       .up_stride = hidden,
                       .y_stride = hidden},
                      isa_,
                      pool_);                           // [N, F]
  multiply(*down_.y, s_out_, weight(kDown), y_);        // [N, E]
  cpu::add(dtype_, h_, y_, y_, elements, isa_, pool_);  // [N, E]
}

void HandWrittenBlock::backward(const void* x, const void* dy) {
  int64_t hidden = s_.hidden;
  int64_t q_stride = s_.heads * s_.head_dim, kv_stride = s_.kv_heads * s_.head_dim;
  multiply(*down_.dx, dy, weight(kDown), d_hidden_);  // [N, F]
  multiply(*down_.dw, dy, s_out_, gradient(kDown));   // [E, F]
  // The gradients of gate and up take their places.
  cpu::swiglu_backward({.dtype = dtype_,
                        .gate = gate_,
                        .up = up_,
                        .dy = d_hidden_,
                        .dgate = gate_,
                        .dup = up_,
                        .rows = s_.rows(),
                        .width = hidden,
                        .gate_stride = hidden,
                        .up_stride = hidden,
                        .dy_stride = hidden,
                        .dgate_stride = hidden,
                        .dup_stride = hidden},
                       isa_, pool_);                      // [N, F] twice
  multiply(*gate_up_.dx, up_, weight(kUp), dh_);          // [N, E]
  multiply(*gate_up_.dw, up_, n2_, gradient(kUp));        // [F, E]
  multiply(*gate_up_.dx_add, gate_, weight(kGate), dh_);  // [N, E]
  multiply(*gate_up_.dw, gate_, n2_, gradient(kGate));    // [F, E]
  norm_backward(h_, kNorm2, rstd2_, dy, dh_);             // [N, E], [E]
  multiply(*output_.dx, dh_, weight(kOutput), do_);       // [N, H*D]
  multiply(*output_.dw, dh_, o_, gradient(kOutput));      // [E, H*D]
  cpu::attention_backward({.problem = attention_problem(s_, dtype_),
                           .q = q_,
                           .k = k_,
                           .v = v_,
                           .o = o_,
                           .dout = do_,
                           .lse = lse_,
                           .dq = dq_,
                           .dk = dk_,
                           .dv = dv_,
                           .q_stride = q_stride,
                           .k_stride = kv_stride,
                           .v_stride = kv_stride,
                           .o_stride = q_stride,
                           .dout_stride = q_stride,
                           .dq_stride = q_stride,
                           .dk_stride = kv_stride,
                           .dv_stride = kv_stride,
                           .workspace = workspace_},
                          isa_, pool_);                  // [N, H*D], [N, K*D] twice
  rotate(dk_, s_.kv_heads, true);                        // [N, K*D]
  rotate(dq_, s_.heads, true);                           // [N, H*D]
  multiply(*key_value_.dx, dv_, weight(kValue), dx_);    // [N, E]
  multiply(*key_value_.dw, dv_, n1_, gradient(kValue));  // [K*D, E]
  multiply(*key_value_.dx_add, dk_, weight(kKey), dx_);  // [N, E]
  multiply(*key_value_.dw, dk_, n1_, gradient(kKey));    // [K*D, E]
  multiply(*query_.dx_add, dq_, weight(kQuery), dx_);    // [N, E]
  multiply(*query_.dw, dq_, n1_, gradient(kQuery));      // [H*D, E]
  norm_backward(x, kNorm1, rstd1_, dh_, dx_);            // [N, E], [E]
}

}  // namespace tessera::bench
