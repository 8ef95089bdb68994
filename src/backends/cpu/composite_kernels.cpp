#include "backends/cpu/composite_kernels.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <tuple>

#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/embedding.h"
#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/rope.h"
#include "backends/cpu/kernels/sum_n.h"
#include "base/random.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/dropout.h"
#include "ops/composite/embedding.h"
#include "ops/composite/rope.h"

namespace tessera::cpu {
namespace {

// Scaled cos and sin of every position, shared by all layers of the same (rotary, length) and made
// when the first of them runs: a program that is only planned makes none.
class RotaryTable {
 public:
  RotaryTable(const RotaryAngles& rotary, int64_t length) : rotary_(rotary), length_(length) {}

  const float* cos() { return made().cos_.data(); }  // [T, R/2]
  const float* sin() { return made().sin_.data(); }

 private:
  RotaryTable& made() {
    std::call_once(once_, [this] {
      auto scale = static_cast<float>(rotary_.scale);
      for (int64_t t = 0; t < length_; ++t) {
        for (double f : rotary_.frequencies) {
          // The angle is rounded to f32 first, as the definition in f32 does.
          float angle = static_cast<float>(t) * static_cast<float>(f);
          cos_.push_back(std::cos(angle) * scale);
          sin_.push_back(std::sin(angle) * scale);
        }
      }
    });
    return *this;
  }
  RotaryAngles rotary_;
  int64_t length_;
  std::once_flag once_;
  std::vector<float> cos_, sin_;
};

std::shared_ptr<RotaryTable> rotary_table(const RotaryAngles& rotary, int64_t length) {
  using Key = std::tuple<std::vector<double>, double, int64_t>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<RotaryTable>> cache;
  std::lock_guard lock(mutex);
  auto& entry = cache[{rotary.frequencies, rotary.scale, length}];
  if (auto table = entry.lock()) return table;
  auto table = std::make_shared<RotaryTable>(rotary, length);
  entry = table;
  return table;
}

// Of x [B, T, H, D]; positions, x and y are left out.
Rope rope_of(const TensorType& x, const RotaryAngles& rotary, bool inverse) {
  const Shape& s = x.shape;
  return {.dtype = x.dtype,
          .batch = s[0],
          .tokens = s[1],
          .heads = s[2],
          .width = s[3],
          .rotary = 2 * static_cast<int64_t>(rotary.frequencies.size()),
          .x_stride = s[2] * s[3],
          .y_stride = s[2] * s[3],
          .inverse = inverse};
}

void register_rope(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("rope", for_floats(0, [isa, &pool](const PrepareContext& c) {
              const auto& op = static_cast<const tessera::Rope&>(c.op);
              auto angles = rotary_table(op.rotary(), c.inputs[0].shape[1]);
              Rope args = rope_of(c.inputs[0], op.rotary(), op.inverse());
              return Launch{kernel_name("rope", isa), 0,
                            [args, angles, isa, &pool](const LaunchArguments& a) mutable {
                              args.x = a.inputs[0];
                              args.y = a.outputs[0];
                              args.cos = angles->cos();
                              args.sin = angles->sin();
                              rope(args, isa, pool);
                            }};
            }));
  table.add(
      "rope_at", for_floats(0, [isa, &pool](const PrepareContext& c) {
        const auto& op = static_cast<const RopeAt&>(c.op);
        auto angles = rotary_table(op.rotary(), op.positions());
        Rope args = rope_of(c.inputs[0], op.rotary(), false);
        return Launch{
            kernel_name("rope_at", isa), 0,
            [args, angles, isa, &pool, limit = op.positions()](const LaunchArguments& a) mutable {
              int64_t start = *a.input<int32_t>(1);
              TESSERA_CHECK(start >= 0 && start + args.tokens <= limit, "unknown positions");
              args.x = a.inputs[0];
              args.y = a.outputs[0];
              args.cos = angles->cos() + start * args.rotary / 2;
              args.sin = angles->sin() + start * args.rotary / 2;
              rope(args, isa, pool);
            }};
      }));
}

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

// The operands of dropout, of which there are `count` behind the first `at`.
template <class Args>
void take_dropout(Args& args, const LaunchArguments& a, size_t at, int count) {
  if (count > 0) args.row_keys = a.input<int64_t>(at);
  if (count > 1) args.first_head = *a.input<int32_t>(at + 1);
}

constexpr int64_t kMaxHead = 256;  // of the kernels

void register_attention(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("attention", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              if (c.inputs[0].shape[3] > kMaxHead)
                return cat("heads of at most ", kMaxHead, " elements");
              AttentionForward args;
              args.problem = attention_problem<Attention>(c);
              int operands = static_cast<const Attention&>(c.op).dropout().operands();
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
                              take_dropout(args, a, 3, operands);
                              attention_forward(args, isa, pool);
                            }};
            }));
  table.add("attention_backward", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              if (c.inputs[0].shape[3] > kMaxHead)
                return cat("heads of at most ", kMaxHead, " elements");
              AttentionBackward args;
              args.problem = attention_problem<tessera::AttentionBackward>(c);
              int operands =
                  static_cast<const tessera::AttentionBackward&>(c.op).dropout().operands();
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
                              take_dropout(args, a, 6, operands);
                              attention_backward(args, isa, pool);
                            }};
            }));
}

void register_embedding(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("embedding", for_floats(1, [&pool](const PrepareContext& c) {
              EmbeddingForward args{
                  .dtype = c.inputs[1].dtype,
                  .tokens = c.inputs[0].elements(),
                  .vocabulary = c.inputs[1].shape[0],
                  .width = c.inputs[1].shape[1],
                  .partial = static_cast<const tessera::Embedding&>(c.op).partial()};
              return Launch{"embedding", 0, [args, &pool](const LaunchArguments& a) mutable {
                              args.ids = a.input<int32_t>(0);
                              args.table = a.inputs[1];
                              args.y = a.outputs[0];
                              embedding_forward(args, pool);
                            }};
            }));
  table.add("embedding_backward", for_floats(1, [isa, &pool](const PrepareContext& c) {
              int64_t tokens = c.inputs[0].elements(), vocabulary = c.outputs[0].shape[0];
              EmbeddingBackward args{
                  .dtype = c.inputs[1].dtype,
                  .tokens = tokens,
                  .vocabulary = vocabulary,
                  .width = c.outputs[0].shape[1],
                  .partial = static_cast<const tessera::EmbeddingBackward&>(c.op).partial()};
              return Launch{kernel_name("embedding_backward", isa),
                            embedding_backward_workspace(tokens, vocabulary),
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.ids = a.input<int32_t>(0);
                              args.dy = a.inputs[1];
                              args.dtable = a.output<float>(0);
                              args.workspace = static_cast<int32_t*>(a.workspace);
                              embedding_backward(args, isa, pool);
                            }};
            }));
}

// Sums: of squares for the norm, of cotangents, of targets.
void register_sums(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("sum_squares", [isa, &pool](const PrepareContext& c) -> Prepared {
    if (c.inputs[0].dtype != DType::kF32) return std::string("takes f32");
    int64_t n = c.inputs[0].elements();
    return Launch{kernel_name("sum_squares", isa), reduce_workspace(n),
                  [n, isa, &pool](const LaunchArguments& a) {
                    *a.output<float>(0) = static_cast<float>(sum_of_squares(
                        a.input<float>(0), n, static_cast<double*>(a.workspace), isa, pool));
                  }};
  });
  table.add("sum_n", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              DType dtype = c.inputs[0].dtype;
              int64_t n = c.inputs[0].elements();
              auto count = static_cast<int64_t>(c.inputs.size());
              return Launch{kernel_name("sum_n", isa), 0, [=, &pool](const LaunchArguments& a) {
                              sum_n({dtype, a.inputs.data(), count, a.outputs[0], n}, isa, pool);
                            }};
            }));
  table.add("count_targets", [](const PrepareContext& c) -> Prepared {
    int64_t n = c.inputs[0].elements();
    return Launch{"count_targets", 0, [n](const LaunchArguments& a) {
                    *a.output<int64_t>(0) = count_unequal(a.input<int32_t>(0), n, kIgnoreIndex);
                  }};
  });
}

}  // namespace

void register_composite_kernels(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_norms(table, isa, pool);
  register_rope(table, isa, pool);
  register_activations(table, isa, pool);
  register_attention(table, isa, pool);
  register_embedding(table, isa, pool);
  register_sums(table, isa, pool);
  register_optimizers(table, isa, pool);
}

}  // namespace tessera::cpu
