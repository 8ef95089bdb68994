#include <algorithm>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/kernels/elementwise.h"

namespace tessera::cpu {
namespace {

// The f16 tensors among the operands or results of a node, with their place in the workspace.
struct Halves {
  struct Tensor {
    size_t index;
    int64_t elements, offset;
  };
  std::vector<TensorType> types;  // all of them, with f32 for f16
  std::vector<Tensor> tensors;

  Halves(std::span<const TensorType> of, int64_t& workspace_bytes) : types(of.begin(), of.end()) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].dtype != DType::kF16) continue;
      types[i].dtype = DType::kF32;
      tensors.push_back({i, types[i].elements(), workspace_bytes});
      workspace_bytes += aligned(types[i].bytes());
    }
  }
};

Prepared prepare_in_f32(const KernelTable& table, const PrepareContext& context, Isa isa,
                        ThreadPool& pool) {
  int64_t bytes = 0;
  Halves inputs(context.inputs, bytes), outputs(context.outputs, bytes);
  if (inputs.tensors.empty() && outputs.tensors.empty()) return std::string("has no f16");
  Prepared prepared =
      table.prepare({context.op, inputs.types, outputs.types, context.mesh, context.label});
  if (!std::holds_alternative<Launch>(prepared)) return prepared;
  Launch inner = std::get<Launch>(std::move(prepared));
  TESSERA_CHECK(!inner.finish, cat(context.op.name(), " must exchange f16 as it is"));
  Launch launch;
  launch.kernel = cat(inner.kernel, " in f32");
  launch.workspace_bytes = bytes + inner.workspace_bytes;
  std::vector<const void*> in(inputs.types.size());
  std::vector<void*> out(outputs.types.size());
  launch.run = [inputs, outputs, inner, bytes, in, out, isa,
                &pool](const LaunchArguments& a) mutable {
    auto* workspace = static_cast<std::byte*>(a.workspace);
    std::copy(a.inputs.begin(), a.inputs.end(), in.begin());
    std::copy(a.outputs.begin(), a.outputs.end(), out.begin());
    for (const Halves::Tensor& t : inputs.tensors) {
      auto* wide = reinterpret_cast<float*>(workspace + t.offset);
      cast_to_f32(a.input<F16>(t.index), wide, t.elements, isa, pool);
      in[t.index] = wide;
    }
    for (const Halves::Tensor& t : outputs.tensors) out[t.index] = workspace + t.offset;
    inner.run({in, out, workspace + bytes});
    for (const Halves::Tensor& t : outputs.tensors) {
      cast_to_f16(reinterpret_cast<const float*>(workspace + t.offset), a.output<F16>(t.index),
                  t.elements, isa, pool);
    }
  };
  return launch;
}

}  // namespace

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
  table.add_for_all([&table, isa, &pool](const PrepareContext& context) {
    return prepare_in_f32(table, context, isa, pool);
  });
}

}  // namespace tessera::cpu
