#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/attention.h"
#include "base/random.h"
#include "ops/composite/attention.h"
#include "ops/composite/dropout.h"

namespace tessera::cpu {
namespace {

// Op is tessera::Attention or tessera::AttentionBackward.
template <class Op>
AttentionProblem attention_problem(const PrepareContext& c) {
  const auto& op = static_cast<const Op&>(c.op);
  const TensorType &q = c.inputs[0], &k = c.inputs[1];
  AttentionProblem problem{.dtype = q.dtype,
                           .batch = q.shape[0],
                           .tokens = q.shape[1],
                           .heads = q.shape[2],
                           .kv_heads = k.shape[2],
                           .head_dim = q.shape[3],
                           .causal = op.mask().causal,
                           .window = op.mask().window,
                           .scale = static_cast<float>(op.scale())};
  if (op.dropout().operands() > 0) {
    problem.threshold = dropout_threshold(op.dropout().p);
    problem.stream = stream_of(op.dropout().stream);
  }
  return problem;
}

// Which operands there are behind the first ones.
struct FurtherOperands {
  bool documents;
  int of_dropout;
};
template <class Op>
FurtherOperands further_operands(const PrepareContext& c) {
  const auto& op = static_cast<const Op&>(c.op);
  return {op.mask().documents, op.dropout().operands()};
}
template <class Args>
void take(Args& args, const LaunchArguments& a, size_t at, FurtherOperands operands) {
  if (operands.documents) {
    args.document_starts = a.input<int32_t>(at++);
    check_document_starts(args.document_starts, args.problem.batch, args.problem.tokens);
  }
  if (operands.of_dropout > 0) args.row_keys = a.input<int64_t>(at);
  if (operands.of_dropout > 1) args.first_head = *a.input<int32_t>(at + 1);
}

constexpr int64_t kMaxHead = 256;  // of the kernels

}  // namespace

void register_attention(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("attention", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              if (c.inputs[0].shape[3] > kMaxHead) return heads_too_wide(kMaxHead);
              AttentionForward args;
              args.problem = attention_problem<Attention>(c);
              auto operands = further_operands<Attention>(c);
              args.q_stride = args.o_stride = c.inputs[0].shape[2] * c.inputs[0].shape[3];
              args.k_stride = args.v_stride = c.inputs[1].shape[2] * c.inputs[1].shape[3];
              return Launch{kernel_name("attention", isa),
                            attention_forward_workspace(args.problem, isa, pool.threads()),
                            [args, operands, isa, &pool](const LaunchArguments& a) mutable {
                              args.q = a.inputs[0];
                              args.k = a.inputs[1];
                              args.v = a.inputs[2];
                              args.o = a.outputs[0];
                              args.lse = a.output<float>(1);
                              args.workspace = a.workspace;
                              take(args, a, 3, operands);
                              attention_forward(args, isa, pool);
                            }};
            }));
  table.add("attention_backward", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              if (c.inputs[0].shape[3] > kMaxHead) return heads_too_wide(kMaxHead);
              AttentionBackward args;
              args.problem = attention_problem<tessera::AttentionBackward>(c);
              auto operands = further_operands<tessera::AttentionBackward>(c);
              args.q_stride = args.o_stride = args.dout_stride = args.dq_stride =
                  c.inputs[0].shape[2] * c.inputs[0].shape[3];
              args.k_stride = args.v_stride = args.dk_stride = args.dv_stride =
                  c.inputs[1].shape[2] * c.inputs[1].shape[3];
              return Launch{kernel_name("attention_backward", isa),
                            attention_backward_workspace(args.problem, isa, pool.threads()),
                            [args, operands, isa, &pool](const LaunchArguments& a) mutable {
                              args.q = a.inputs[0];
                              args.k = a.inputs[1];
                              args.v = a.inputs[2];
                              args.o = a.inputs[3];
                              args.lse = a.input<float>(4);
                              args.dout = a.inputs[5];
                              args.dq = a.outputs[0];
                              args.dk = a.outputs[1];
                              args.dv = a.outputs[2];
                              args.workspace = a.workspace;
                              take(args, a, 6, operands);
                              attention_backward(args, isa, pool);
                            }};
            }));
}

}  // namespace tessera::cpu
