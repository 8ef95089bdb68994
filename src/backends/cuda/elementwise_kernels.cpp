#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/primitive_kernels.h"
#include "ops/primitive/elementwise.h"

namespace tessera::cuda {
namespace {

Launch unary_launch(const PrepareContext& context, Device& device, const Kernel& kernel) {
  return {launch_name(context), 0,
          [&device, kernel, n = context.outputs[0].elements()](const LaunchArguments& a) {
            launch_vectors(device, kernel, n, a.inputs[0], a.outputs[0], n);
          }};
}

Launch binary_launch(const PrepareContext& context, Device& device, const Kernel& kernel) {
  return {launch_name(context), 0,
          [&device, kernel, n = context.outputs[0].elements()](const LaunchArguments& a) {
            launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.outputs[0], n);
          }};
}

Prepared prepare_unary(const PrepareContext& context, Device& device) {
  DType dtype = context.inputs[0].dtype;
  bool logical = static_cast<const Unary&>(context.op).kind() == UnaryKind::kNot;
  if (!logical && !computes(dtype)) return not_taken(context, dtype);
  return unary_launch(context, device, find_kernel(device, context.op.name(), name(dtype)));
}

Prepared prepare_binary(const PrepareContext& context, Device& device) {
  DType dtype = context.inputs[0].dtype;
  BinaryKind kind = static_cast<const Binary&>(context.op).kind();
  bool taken = kind >= BinaryKind::kAnd   ? dtype == DType::kBool
               : kind == BinaryKind::kPow ? computes(dtype)
                                          : computes(dtype) || counts(dtype);
  if (!taken) return not_taken(context, dtype);
  return binary_launch(context, device, find_kernel(device, context.op.name(), name(dtype)));
}

// As holds() of kernels/elementwise.cu counts them.
int32_t number_of(Comparison comparison) {
  switch (comparison) {
    case Comparison::kEq: return 0;
    case Comparison::kNe: return 1;
    case Comparison::kLt: return 2;
    case Comparison::kLe: return 3;
    case Comparison::kGt: return 4;
    case Comparison::kGe: return 5;
  }
  return 0;
}

Prepared prepare_compare(const PrepareContext& context, Device& device) {
  DType dtype = context.inputs[0].dtype;
  if (dtype == DType::kF16) return not_taken(context, dtype);
  int32_t comparison = number_of(static_cast<const Compare&>(context.op).comparison());
  Kernel kernel = find_kernel(device, "compare", name(dtype));
  return Launch{
      launch_name(context), 0,
      [&device, kernel, comparison, n = context.outputs[0].elements()](const LaunchArguments& a) {
        launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.outputs[0], n, comparison);
      }};
}

Prepared prepare_select(const PrepareContext& context, Device& device) {
  Kernel kernel = find_kernel(device, cat("select_", size_of(context.outputs[0].dtype)));
  return Launch{launch_name(context), 0,
                [&device, kernel, n = context.outputs[0].elements()](const LaunchArguments& a) {
                  launch_vectors(device, kernel, n, a.inputs[0], a.inputs[1], a.inputs[2],
                                 a.outputs[0], n);
                }};
}

Prepared prepare_convert(const PrepareContext& context, Device& device) {
  return unary_launch(context, device,
                      find_kernel(device, "convert", name(context.inputs[0].dtype),
                                  name(context.outputs[0].dtype)));
}

}  // namespace

void register_elementwise_primitives(KernelTable& table, Device& device) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op, [prepare, &device](const PrepareContext& c) { return prepare(c, device); });
  };
  for (std::string_view op : {"neg", "exp", "log", "sqrt", "rsqrt", "tanh", "logistic", "erf",
                              "sin", "cos", "abs", "is_finite", "not"}) {
    add_to_table(op, prepare_unary);
  }
  for (std::string_view op : {"add", "sub", "mul", "div", "max", "min", "pow", "and", "or"}) {
    add_to_table(op, prepare_binary);
  }
  add_to_table("compare", prepare_compare);
  add_to_table("select", prepare_select);
  add_to_table("convert", prepare_convert);
}

}  // namespace tessera::cuda
