#include "tests/runtime/number_kernels.h"

#include <cstring>

namespace tessera {
namespace {

template <class F>
Prepare elementwise(int64_t workspace_per_element, F f) {
  return [=](const PrepareContext& context) -> Prepared {
    if (context.outputs[0].dtype != DType::kF32)
      return cat("not for ", name(context.outputs[0].dtype));
    int64_t n = context.outputs[0].elements();
    return Launch{
        "number", n * workspace_per_element, [=](const LaunchArguments& a) {
          if (workspace_per_element > 0)
            std::memset(a.workspace, 0xFF, static_cast<size_t>(n * workspace_per_element));
          const float* second = a.inputs.size() > 1 ? a.input<float>(1) : a.input<float>(0);
          for (int64_t i = 0; i < n; ++i)
            a.output<float>(0)[i] = f(a.input<float>(0)[i], second[i]);
        }};
  };
}

}  // namespace

KernelTable number_kernels() {
  KernelTable table;
  table.add("neg", elementwise(0, [](float a, float) { return -a; }));
  table.add("add", elementwise(0, [](float a, float b) { return a + b; }));
  table.add("mul", elementwise(12, [](float a, float b) { return a * b; }));
  return table;
}

}  // namespace tessera
