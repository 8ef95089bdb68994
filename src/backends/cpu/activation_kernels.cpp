#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/dropout.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/gelu.h"
#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/swiglu.h"
#include "base/random.h"
#include "ops/composite/dropout.h"
#include "ops/composite/gelu.h"
#include "ops/composite/scale.h"

namespace tessera::cpu {
namespace {

void register_swiglu(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("swiglu", for_floats(0, [isa, &pool](const PrepareContext& c) {
              int64_t width = c.inputs[0].shape.empty() ? 1 : c.inputs[0].shape.back(),
                      rows = width ? c.inputs[0].elements() / width : 0;
              SwigluForward args{.dtype = c.inputs[0].dtype,
                                 .rows = rows,
                                 .width = width,
                                 .gate_stride = width,
                                 .up_stride = width,
                                 .y_stride = width};
              return Launch{kernel_name("swiglu", isa), 0,
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.gate = a.inputs[0];
                              args.up = a.inputs[1];
                              args.y = a.outputs[0];
                              swiglu_forward(args, isa, pool);
                            }};
            }));
  table.add("swiglu_backward", for_floats(0, [isa, &pool](const PrepareContext& c) {
              int64_t width = c.inputs[0].shape.empty() ? 1 : c.inputs[0].shape.back(),
                      rows = width ? c.inputs[0].elements() / width : 0;
              SwigluBackward args{.dtype = c.inputs[0].dtype,
                                  .rows = rows,
                                  .width = width,
                                  .gate_stride = width,
                                  .up_stride = width,
                                  .dy_stride = width,
                                  .dgate_stride = width,
                                  .dup_stride = width};
              return Launch{kernel_name("swiglu_backward", isa), 0,
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.gate = a.inputs[0];
                              args.up = a.inputs[1];
                              args.dy = a.inputs[2];
                              args.dgate = a.outputs[0];
                              args.dup = a.outputs[1];
                              swiglu_backward(args, isa, pool);
                            }};
            }));
}

void register_gelu(KernelTable& table, Isa isa, ThreadPool& pool) {
  auto prepare = [isa, &pool](const PrepareContext& c, GeluKind kind) {
    Gelu args{
        .dtype = c.inputs[0].dtype, .exact = kind == GeluKind::kExact, .n = c.inputs[0].elements()};
    bool backward = c.inputs.size() == 2;
    return Launch{kernel_name(c.op.name(), isa), 0,
                  [args, backward, isa, &pool](const LaunchArguments& a) mutable {
                    args.x = a.inputs[0];
                    args.dy = backward ? a.inputs[1] : nullptr;
                    args.y = a.outputs[0];
                    gelu(args, isa, pool);
                  }};
  };
  table.add("gelu", for_floats(0, [prepare](const PrepareContext& c) {
              return prepare(c, static_cast<const tessera::Gelu&>(c.op).kind());
            }));
  table.add("gelu_backward", for_floats(0, [prepare](const PrepareContext& c) {
              return prepare(c, static_cast<const GeluBackward&>(c.op).kind());
            }));
}

void register_bias(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("add_bias", for_floats(0, [isa, &pool](const PrepareContext& c) {
              DType dtype = c.inputs[0].dtype;
              int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back();
              return Launch{kernel_name("add_bias", isa), 0, [=, &pool](const LaunchArguments& a) {
                              add_bias(dtype, a.inputs[0], a.inputs[1], a.outputs[0], rows, width,
                                       isa, pool);
                            }};
            }));
  table.add("add_bias_backward", for_floats(0, [isa, &pool](const PrepareContext& c) {
              ColumnSum args{};
              args.dtype = c.inputs[0].dtype;
              args.rows = rows_of(c.inputs[0]);
              args.width = c.inputs[0].shape.back();
              return Launch{kernel_name("add_bias_backward", isa),
                            column_sum_workspace(args.rows, args.width),
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.x = a.inputs[0];
                              args.y = a.output<float>(0);
                              args.workspace = static_cast<float*>(a.workspace);
                              column_sum(args, isa, pool);
                            }};
            }));
}

void register_dropout(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("dropout", for_floats(0, [isa, &pool](const PrepareContext& c) {
              const auto& op = static_cast<const tessera::Dropout&>(c.op);
              Dropout args{};
              args.dtype = c.inputs[0].dtype;
              args.stream = stream_of(op.stream());
              args.threshold = dropout_threshold(op.p());
              args.rows = c.inputs[0].shape[0];
              return Launch{kernel_name("dropout", isa), 0,
                            [args, shape = c.inputs[0].shape, part = op.part(), isa,
                             &pool](const LaunchArguments& a) mutable {
                              args.x = a.inputs[0];
                              args.y = a.outputs[0];
                              args.row_keys = a.input<int64_t>(1);
                              int64_t begin = part.whole() ? 0 : *a.input<int32_t>(2);
                              args.lines = RandomLines(shape, part, begin);
                              dropout(args, isa, pool);
                            }};
            }));
}

void register_scale(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("scale", for_floats(0, [isa, &pool](const PrepareContext& c) {
              auto factor = static_cast<float>(static_cast<const tessera::Scale&>(c.op).factor());
              return Launch{kernel_name("scale", isa), 0,
                            [factor, dtype = c.inputs[0].dtype, n = c.inputs[0].elements(), isa,
                             &pool](const LaunchArguments& a) {
                              scale(dtype, a.inputs[0], &factor, a.outputs[0], n, isa, pool);
                            }};
            }));
}

}  // namespace

void register_activations(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_swiglu(table, isa, pool);
  register_gelu(table, isa, pool);
  register_bias(table, isa, pool);
  register_dropout(table, isa, pool);
  register_scale(table, isa, pool);
}

}  // namespace tessera::cpu
