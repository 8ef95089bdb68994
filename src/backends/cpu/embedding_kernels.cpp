#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/embedding.h"
#include "ops/composite/embedding.h"

namespace tessera::cpu {

void register_embedding(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("embedding", for_floats(1, [&pool](const PrepareContext& c) {
              EmbeddingForward args{
                  .dtype = c.inputs[1].dtype,
                  .tokens = c.inputs[0].elements(),
                  .vocabulary = c.inputs[1].shape[0],
                  .width = c.inputs[1].shape[1],
                  .partial = static_cast<const tessera::Embedding&>(c.op).partial()};
              return Launch{"embedding", 0, [args, &pool](const LaunchArguments& a) mutable {
                              args.ids = a.input<int32_t>(0);
                              args.table = a.inputs[1];
                              args.y = a.outputs[0];
                              embedding_forward(args, pool);
                            }};
            }));
  auto backward = for_floats(1, [isa, &pool](const PrepareContext& c) {
    const auto& op = static_cast<const tessera::EmbeddingBackward&>(c.op);
    int64_t tokens = c.inputs[0].elements(), vocabulary = c.outputs[0].shape[0];
    EmbeddingBackward args{.dtype = c.inputs[1].dtype,
                           .tokens = tokens,
                           .vocabulary = vocabulary,
                           .width = c.outputs[0].shape[1],
                           .partial = op.partial(),
                           .adds = op.adds()};
    return Launch{kernel_name(op.name(), isa), embedding_backward_workspace(tokens, vocabulary),
                  [args, isa, &pool](const LaunchArguments& a) mutable {
                    if (args.adds)
                      copy_unless_shared(a.inputs[2], a.outputs[0],
                                         args.vocabulary * args.width * 4, pool);
                    args.ids = a.input<int32_t>(0);
                    args.dy = a.inputs[1];
                    args.dtable = a.output<float>(0);
                    args.workspace = static_cast<int32_t*>(a.workspace);
                    embedding_backward(args, isa, pool);
                  }};
  });
  table.add("embedding_backward", backward);
  table.add("embedding_backward_add", backward);
}

}  // namespace tessera::cpu
