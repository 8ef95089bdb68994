#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/kernels/elementwise.h"

namespace tessera::cpu {
void register_half_kernels(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("convert", [isa, &pool](const PrepareContext& c) -> Prepared {
    DType from = c.inputs[0].dtype, to = c.outputs[0].dtype;
    int64_t n = c.outputs[0].elements();
    std::string kernel = cat("convert ", name(isa));
    if (from == DType::kF32 && to == DType::kF16) {
      return Launch{kernel, 0, [=, &pool](const LaunchArguments& a) {
                      cast_to_f16(a.input<float>(0), a.output<F16>(0), n, isa, pool);
                    }};
    }
    if (from == DType::kF16 && to == DType::kF32) {
      return Launch{kernel, 0, [=, &pool](const LaunchArguments& a) {
                      cast_to_f32(a.input<F16>(0), a.output<float>(0), n, isa, pool);
                    }};
    }
    return cat("takes f16 and f32, not ", name(from), " to ", name(to));
  });
  const auto casts = [isa, &pool]() -> HalfCasts {
    return {[isa, &pool](const void* from, void* to, int64_t n) {
              cast_to_f32(static_cast<const F16*>(from), static_cast<float*>(to), n, isa, pool);
            },
            [isa, &pool](const void* from, void* to, int64_t n) {
              cast_to_f16(static_cast<const float*>(from), static_cast<F16*>(to), n, isa, pool);
            }};
  };
  table.add_for_all([&table, casts](const PrepareContext& context) {
    return prepare_in_f32(table, context, casts);
  });
}

}  // namespace tessera::cpu
