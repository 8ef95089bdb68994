#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/adamw.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/lion.h"
#include "backends/cpu/kernels/sgd.h"
#include "ops/composite/adamw.h"
#include "ops/composite/lion.h"
#include "ops/composite/sgd.h"

namespace tessera::cpu {
namespace {

// A launch of `kernel`, whose arguments `args` are w and `kept` buffers, updated in place, and what
// all updates of flat buffers have (ops/composite/flat_update.h). `bind` sets what is its own.
template <class Args, class Bind>
Prepared prepare_update(const PrepareContext& c, Args args, size_t kept, Isa isa, ThreadPool& pool,
                        void (*kernel)(const Args&, Isa, ThreadPool&), Bind bind) {
  if (c.inputs[0].dtype != DType::kF32) return std::string("takes f32");
  const size_t table = c.inputs.size() - 2;
  args.size = c.inputs[0].elements();
  args.segments = c.inputs[table].elements();
  auto run = [=, &pool](const LaunchArguments& a) mutable {
    // Operands that the plan could not put into the outputs' bytes are moved first.
    for (size_t i = 0; i <= kept; ++i)
      if (a.inputs[i] != a.outputs[i]) copy(a.inputs[i], a.outputs[i], args.size * 4, pool);
    args.w = a.output<float>(0);
    args.m = a.output<float>(1);
    args.g = a.input<float>(kept + 1);
    args.lr = a.input<float>(kept + 2);
    args.scale = a.input<float>(kept + 3);
    args.ok = a.input<uint8_t>(kept + 4);
    args.segment_begin = a.input<int64_t>(table);
    args.segment_decay = a.input<float>(table + 1);
    bind(args, a);
    kernel(args, isa, pool);
  };
  return Launch{kernel_name(c.op.name(), isa), 0, run};
}

}  // namespace

void register_optimizers(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("adamw", [isa, &pool](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const tessera::AdamW&>(c.op);
    AdamW args{};
    args.beta1 = op.beta1();
    args.beta2 = op.beta2();
    args.epsilon = op.epsilon();
    return prepare_update(c, args, 2, isa, pool, adamw,
                          [rounds = op.rounds()](AdamW& own, const LaunchArguments& a) {
                            own.v = a.output<float>(2);
                            own.shadow = rounds ? a.output<BF16>(3) : nullptr;
                            own.step = a.input<int64_t>(7);
                          });
  });
  auto nothing_else = [](auto&, const LaunchArguments&) {};
  table.add("sgd", [=, &pool](const PrepareContext& c) -> Prepared {
    Sgd args{};
    args.momentum = static_cast<const tessera::Sgd&>(c.op).momentum();
    return prepare_update(c, args, 1, isa, pool, sgd, nothing_else);
  });
  table.add("lion", [=, &pool](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const tessera::Lion&>(c.op);
    Lion args{};
    args.beta1 = op.beta1();
    args.beta2 = op.beta2();
    return prepare_update(c, args, 1, isa, pool, lion, nothing_else);
  });
}

}  // namespace tessera::cpu
