#include "runtime/kernel_preparation.h"

#include <algorithm>

namespace tessera {
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

}  // namespace

void require_ranks(const Mesh& mesh, int ranks) {
  TESSERA_CHECK(mesh.world_size() == ranks, "the mesh and the job have different numbers of ranks");
}

Prepared prepare_in_f32(const KernelTable& table, const PrepareContext& context,
                        const std::function<HalfCasts()>& make_casts) {
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
  launch.run = [inputs, outputs, inner, bytes, casts = make_casts(),
                in = std::vector<const void*>(inputs.types.size()),
                out = std::vector<void*>(outputs.types.size())](const LaunchArguments& a) mutable {
    auto* workspace = static_cast<std::byte*>(a.workspace);
    std::ranges::copy(a.inputs, in.begin());
    std::ranges::copy(a.outputs, out.begin());
    for (const Halves::Tensor& t : inputs.tensors) {
      casts.widen(a.inputs[t.index], workspace + t.offset, t.elements);
      in[t.index] = workspace + t.offset;
    }
    for (const Halves::Tensor& t : outputs.tensors) out[t.index] = workspace + t.offset;
    inner.run({in, out, workspace + bytes});
    for (const Halves::Tensor& t : outputs.tensors)
      casts.narrow(workspace + t.offset, a.outputs[t.index], t.elements);
  };
  return launch;
}

}  // namespace tessera
