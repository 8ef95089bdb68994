#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/layer_norm.h"
#include "backends/cpu/kernels/rms_norm.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/rms_norm.h"

namespace tessera::cpu {
namespace {

void register_rms_norm(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("rms_norm", for_floats(0, [isa, &pool](const PrepareContext& c) {
              auto epsilon = static_cast<float>(static_cast<const RmsNorm&>(c.op).epsilon());
              RmsNormForward args{.dtype = c.inputs[0].dtype,
                                  .rows = rows_of(c.inputs[0]),
                                  .width = c.inputs[0].shape.back(),
                                  .epsilon = epsilon};
              return Launch{kernel_name("rms_norm", isa), 0,
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.x = a.inputs[0];
                              args.w = a.inputs[1];
                              args.y = a.outputs[0];
                              args.rstd = a.output<float>(1);
                              rms_norm_forward(args, isa, pool);
                            }};
            }));
  for (bool adds : {false, true}) {
    const std::string_view op = adds ? "rms_norm_backward_add" : "rms_norm_backward";
    table.add(op, for_floats(0, [op, adds, isa, &pool](const PrepareContext& c) {
                int64_t rows = rows_of(c.inputs[0]), width = c.inputs[0].shape.back();
                RmsNormBackward args{.dtype = c.inputs[0].dtype, .rows = rows, .width = width};
                return Launch{kernel_name(op, isa), rms_norm_backward_workspace(rows, width),
                              [args, adds, isa, &pool](const LaunchArguments& a) mutable {
                                args.x = a.inputs[0];
                                args.w = a.inputs[1];
                                args.rstd = a.input<float>(2);
                                args.dy = a.inputs[3];
                                args.added = adds ? a.inputs[4] : nullptr;
                                args.dx = a.outputs[0];
                                args.dw = a.output<float>(1);
                                args.workspace = static_cast<float*>(a.workspace);
                                rms_norm_backward(args, isa, pool);
                              }};
              }));
  }
}

void register_layer_norm(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("layer_norm", for_floats(0, [isa, &pool](const PrepareContext& c) {
              LayerNormForward args{};
              args.dtype = c.inputs[0].dtype;
              args.rows = rows_of(c.inputs[0]);
              args.width = c.inputs[0].shape.back();
              args.epsilon = static_cast<float>(static_cast<const LayerNorm&>(c.op).epsilon());
              bool bias = c.inputs.size() == 3;
              return Launch{kernel_name("layer_norm", isa), 0,
                            [args, bias, isa, &pool](const LaunchArguments& a) mutable {
                              args.x = a.inputs[0];
                              args.w = a.inputs[1];
                              args.b = bias ? a.inputs[2] : nullptr;
                              args.y = a.outputs[0];
                              args.mean = a.output<float>(1);
                              args.rstd = a.output<float>(2);
                              layer_norm_forward(args, isa, pool);
                            }};
            }));
  for (bool adds : {false, true}) {
    const std::string_view op = adds ? "layer_norm_backward_add" : "layer_norm_backward";
    table.add(op, for_floats(0, [op, adds, isa, &pool](const PrepareContext& c) {
                LayerNormBackward args{};
                args.dtype = c.inputs[0].dtype;
                args.rows = rows_of(c.inputs[0]);
                args.width = c.inputs[0].shape.back();
                return Launch{kernel_name(op, isa),
                              layer_norm_backward_workspace(args.rows, args.width),
                              [args, adds, isa, &pool](const LaunchArguments& a) mutable {
                                args.x = a.inputs[0];
                                args.w = a.inputs[1];
                                args.mean = a.input<float>(2);
                                args.rstd = a.input<float>(3);
                                args.dy = a.inputs[4];
                                args.added = adds ? a.inputs[5] : nullptr;
                                args.dx = a.outputs[0];
                                args.dw = a.output<float>(1);
                                args.db = a.output<float>(2);
                                args.workspace = static_cast<float*>(a.workspace);
                                layer_norm_backward(args, isa, pool);
                              }};
              }));
  }
}

}  // namespace

void register_norms(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_rms_norm(table, isa, pool);
  register_layer_norm(table, isa, pool);
}

}  // namespace tessera::cpu
