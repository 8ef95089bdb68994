#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/kernel_launch.h"
#include "base/error.h"

namespace tessera::cuda {
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
      workspace_bytes += aligned_bytes(types[i].bytes());
    }
  }
};

Prepared prepare_in_f32(const KernelTable& table, const PrepareContext& context, Device& device) {
  int64_t bytes = 0;
  Halves inputs(context.inputs, bytes), outputs(context.outputs, bytes);
  if (inputs.tensors.empty() && outputs.tensors.empty()) return std::string("has no f16");
  Prepared prepared =
      table.prepare({context.op, inputs.types, outputs.types, context.mesh, context.label});
  if (!std::holds_alternative<Launch>(prepared)) return prepared;
  Launch inner = std::get<Launch>(std::move(prepared));
  TESSERA_CHECK(!inner.finish, cat(context.op.name(), " must exchange f16 as it is"));
  Kernel widen = find_kernel(device, "convert_f16_f32"),
         narrow = find_kernel(device, "convert_f32_f16");
  Launch launch;
  launch.kernel = cat(inner.kernel, " in f32");
  launch.workspace_bytes = bytes + inner.workspace_bytes;
  launch.run = [=, &device, in = std::vector<const void*>(inputs.types.size()),
                out = std::vector<void*>(outputs.types.size())](const LaunchArguments& a) mutable {
    auto* workspace = static_cast<std::byte*>(a.workspace);
    std::ranges::copy(a.inputs, in.begin());
    std::ranges::copy(a.outputs, out.begin());
    for (const Halves::Tensor& t : inputs.tensors) {
      void* wide = workspace + t.offset;
      launch_vectors(device, widen, t.elements, a.inputs[t.index], wide, t.elements);
      in[t.index] = wide;
    }
    for (const Halves::Tensor& t : outputs.tensors) out[t.index] = workspace + t.offset;
    inner.run({in, out, workspace + bytes});
    for (const Halves::Tensor& t : outputs.tensors) {
      const void* wide = workspace + t.offset;
      launch_vectors(device, narrow, t.elements, wide, a.outputs[t.index], t.elements);
    }
  };
  return launch;
}

}  // namespace

void register_half_kernels(KernelTable& table, Device& device) {
  table.add_for_all([&table, &device](const PrepareContext& context) {
    return prepare_in_f32(table, context, device);
  });
}

}  // namespace tessera::cuda
