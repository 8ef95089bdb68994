#pragma once
// Runs the attention kernels on tensors of a problem, and problems to run them on.
#include "backends/cpu/kernels/attention.h"
#include "tests/backends/cpu/attention_reference.h"

namespace tessera::cpu {

// Full of NaN, and no byte larger than asked for.
class Workspace {
 public:
  explicit Workspace(int64_t bytes)
      : data_(
            static_cast<char*>(::operator new(static_cast<size_t>(bytes), std::align_val_t(64)))) {
    std::memset(data_, 0xff, static_cast<size_t>(bytes));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { ::operator delete(data_, std::align_val_t(64)); }
  void* data() { return data_; }

 private:
  char* data_;
};

struct Result {
  Heads o;
  Tensor lse;
  Packed gradient;
  bool operator==(const Result&) const = default;
};

inline void run_forward(const AttentionProblem& p, Packed& in, Result& out, Isa isa,
                        ThreadPool& pool, const Starts& starts = {}) {
  Workspace workspace(attention_forward_workspace(p, isa, pool.threads()));
  std::vector<int64_t> keys = dropout_keys(p);
  AttentionForward args{.problem = p,
                        .q = in.all.at(0),
                        .k = in.all.at(in.k),
                        .v = in.all.at(in.v),
                        .o = out.o.all.data(),
                        .lse = out.lse.f32(),
                        .q_stride = in.stride,
                        .k_stride = in.stride,
                        .v_stride = in.stride,
                        .o_stride = out.o.stride,
                        .workspace = workspace.data(),
                        .row_keys = keys.data(),
                        .first_head = kFirstHead,
                        .document_starts = starts.empty() ? nullptr : starts.data()};
  attention_forward(args, isa, pool);
}

inline void run_backward(const AttentionProblem& p, Packed& in, const Heads& dout, Result& out,
                         Isa isa, ThreadPool& pool, const Starts& starts = {}) {
  Workspace workspace(attention_backward_workspace(p, isa, pool.threads()));
  std::vector<int64_t> keys = dropout_keys(p);
  int64_t stride = in.stride;
  AttentionBackward args{.problem = p,
                         .q = in.all.at(0),
                         .k = in.all.at(in.k),
                         .v = in.all.at(in.v),
                         .o = out.o.all.data(),
                         .dout = dout.all.data(),
                         .lse = out.lse.f32(),
                         .dq = out.gradient.all.at(0),
                         .dk = out.gradient.all.at(in.k),
                         .dv = out.gradient.all.at(in.v),
                         .q_stride = stride,
                         .k_stride = stride,
                         .v_stride = stride,
                         .o_stride = out.o.stride,
                         .dout_stride = dout.stride,
                         .dq_stride = stride,
                         .dk_stride = stride,
                         .dv_stride = stride,
                         .workspace = workspace.data(),
                         .row_keys = keys.data(),
                         .first_head = kFirstHead,
                         .document_starts = starts.empty() ? nullptr : starts.data()};
  attention_backward(args, isa, pool);
}

inline Result run(const AttentionProblem& p, Packed& in, const Heads& dout, Isa isa,
                  ThreadPool& pool, const Starts& starts = {}) {
  Result out{Heads(p, kUntouched), Tensor(DType::kF32, p.batch * p.heads * p.tokens, kUntouched),
             Packed(p, kUntouched)};
  run_forward(p, in, out, isa, pool, starts);
  run_backward(p, in, dout, out, isa, pool, starts);
  return out;
}

// Which part of a packed row an error is taken over.
struct Columns {
  int64_t stride, begin, end;
};
template <class A>
double error_over(const A& a, const Doubles& exact, const Doubles& terms, Columns columns) {
  double difference = 0, norm = 0;
  for (int64_t row = 0; row < std::ssize(exact); row += columns.stride) {
    for (int64_t i = row + columns.begin; i < row + columns.end; ++i) {
      difference += (a[i] - exact[i]) * (a[i] - exact[i]);
      norm += terms[i] * terms[i];
    }
  }
  return std::sqrt(difference / norm);
}

inline AttentionProblem problem(int64_t tokens, int64_t head_dim, int64_t heads, int64_t kv_heads,
                                bool causal, int64_t window) {
  AttentionProblem p;
  // Enough numbers for a mean error.
  p.batch = tokens < 4 ? 16 : tokens < 20 ? 4 : tokens < 100 ? 1 + tokens % 2 : 1;
  p.tokens = tokens;
  p.head_dim = head_dim;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.causal = causal;
  p.window = window;
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  return p;
}

inline AttentionProblem with_dropout(AttentionProblem p, double rate) {
  p.threshold = static_cast<int32_t>(rate * 65536);
  p.stream = stream_of("attention");
  return p;
}

// Few heads and many tokens are cut into several chunks a head, evenly and unevenly.
inline const AttentionProblem kInChunks[] = {problem(520, 20, 2, 1, true, 0),
                                             problem(600, 8, 2, 2, true, 300)};

}  // namespace tessera::cpu
