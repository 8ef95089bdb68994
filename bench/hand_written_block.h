#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/kernels/matmul.h"
#include "runtime/memory.h"

namespace tessera::bench {

struct BlockShape {
  int64_t batch, tokens;                           // B, T
  int64_t width;                                   // E
  int64_t heads, kv_heads;                         // H, K
  int64_t head_dim;                                // D
  int64_t hidden;                                  // F
  int64_t rows() const { return batch * tokens; }  // N
};
constexpr double kRopeTheta = 10000;
constexpr float kNormEpsilon = 1e-5f;

// The parameters of a block in the order in which they lie in its flat buffers.
enum Parameter { kNorm1, kQuery, kKey, kValue, kOutput, kNorm2, kGate, kUp, kDown, kParameters };

// A Llama block, forward and backward, as one would write it in C: kernels called one after the
// other on buffers that the program allocated at its start. No graph, no plan, no registry: what
// the executor's time is compared with.
//
//   h = x + attention(rope(norm(x))) Wo^T,   y = h + swiglu(norm(h)) Wd^T
class HandWrittenBlock {
 public:
  // masters: f32 [size], of which parameter p begins at element offsets[p]. It must outlive the
  // block.
  HandWrittenBlock(const BlockShape& shape, DType dtype, const float* masters, int64_t size,
                   std::span<const int64_t> offsets, cpu::Isa isa, ThreadPool& pool);

  // x, dy [B, T, E] in dtype. Fills y, dx and gradients.
  void step(const void* x, const void* dy);

  const void* y() const { return y_; }                   // [B, T, E]
  const void* dx() const { return dx_; }                 // [B, T, E]
  const float* gradients() const { return gradients_; }  // [size], laid out like the masters

 private:
  // Y = X W^T with W [out, in], and its two gradients; dx_add adds to what is there.
  struct Linear {
    std::shared_ptr<const cpu::Matmul> y, dx, dx_add, dw;
  };

  void make_rotary_table();
  Linear make_linear(int64_t out, int64_t in);
  // Sets every pointer below to its place behind `begin`; returns the bytes of all.
  int64_t lay_out(std::byte* begin);
  int64_t workspace_bytes() const;

  void forward(const void* x);
  void backward(const void* x, const void* dy);
  void multiply(const cpu::Matmul& product, const void* a, const void* b, void* c);
  void rotate(void* x, int64_t heads, bool inverse);
  void norm(const void* x, Parameter w, void* y, float* rstd);
  void norm_backward(const void* x, Parameter w, const float* rstd, const void* added,
                     void* dy_to_dx);
  const void* weight(Parameter p) const;
  float* gradient(Parameter p) const { return gradients_ + offsets_[static_cast<size_t>(p)]; }

  BlockShape s_;
  DType dtype_;
  const float* masters_;
  int64_t size_;
  std::vector<int64_t> offsets_;
  cpu::Isa isa_;
  ThreadPool& pool_;

  Linear query_, key_value_, output_, gate_up_, down_;
  std::vector<float> cos_, sin_;  // [T, D/2]
  HostBuffer memory_;

  void* weights_ = nullptr;  // [size] in dtype: the masters rounded, or themselves for f32
  float* gradients_ = nullptr;
  // Kept from forward to backward.
  void *n1_, *q_, *k_, *v_, *o_, *h_, *n2_, *gate_, *up_, *s_out_, *y_;
  float *rstd1_, *rstd2_, *lse_;
  // Of the backward pass.
  void *d_hidden_, *dh_, *do_, *dq_, *dk_, *dv_, *dx_;
  void* workspace_;
};

}  // namespace tessera::bench
