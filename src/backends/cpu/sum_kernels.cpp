#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/sum_n.h"
#include "base/ignore_index.h"

namespace tessera::cpu {

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

}  // namespace tessera::cpu
