#include <cstring>

#include "backends/cpu/cpu_kernels.h"
#include "backends/cpu/kernels/cached_attention.h"
#include "ops/composite/attention.h"

// Programs that continue a sequence: state of past tokens, read and extended.
namespace tessera::cpu {
namespace {

constexpr int64_t kMaxCachedHead = 256;  // of the kernel

void register_cached_attention(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("cached_attention", for_floats(0, [isa, &pool](const PrepareContext& c) -> Prepared {
              const auto& op = static_cast<const tessera::CachedAttention&>(c.op);
              const TensorType &q = c.inputs[0], &k = c.inputs[1];
              if (q.shape[3] > kMaxCachedHead) return heads_too_wide(kMaxCachedHead);
              CachedAttention args;
              args.dtype = q.dtype;
              args.batch = q.shape[0];
              args.queries = q.shape[1];
              args.rows = k.shape[0];
              args.capacity = k.shape[1];
              args.heads = q.shape[2];
              args.kv_heads = k.shape[2];
              args.head_dim = q.shape[3];
              args.window = op.window();
              args.scale = static_cast<float>(op.scale());
              return Launch{cat("cached_attention ", name(isa)),
                            cached_attention_workspace(args, isa, pool.threads()),
                            [args, isa, &pool](const LaunchArguments& a) mutable {
                              args.q = a.inputs[0];
                              args.k = a.inputs[1];
                              args.v = a.inputs[2];
                              args.start = a.input<int32_t>(3);
                              args.row = a.input<int32_t>(4);
                              args.o = a.outputs[0];
                              args.workspace = a.workspace;
                              cached_attention(args, isa, pool);
                            }};
            }));
}

void register_cache_write(KernelTable& table) {
  table.add("cache_write", [](const PrepareContext& c) -> Prepared {
    const TensorType &cache = c.inputs[0], &x = c.inputs[1];
    int64_t batch = x.shape[0], n = x.shape[1], rows = cache.shape[0], capacity = cache.shape[1];
    int64_t token = batch * n == 0 ? 0 : x.bytes() / (batch * n);
    return Launch{
        "cache_write", 0, [=, bytes = cache.bytes()](const LaunchArguments& a) {
          const int32_t *start = a.input<int32_t>(2), *row = a.input<int32_t>(3);
          // Where the plan could not let the caches share their bytes.
          if (a.inputs[0] != a.outputs[0])
            std::memcpy(a.outputs[0], a.inputs[0], static_cast<size_t>(bytes));
          for (int64_t b = 0; b < batch; ++b) {
            TESSERA_CHECK(start[b] >= 0 && start[b] + n <= capacity && row[b] >= 0 && row[b] < rows,
                          "tokens beyond the end of the cache");
            std::memcpy(a.output<std::byte>(0) + (row[b] * capacity + start[b]) * token,
                        a.input<std::byte>(1) + b * n * token, static_cast<size_t>(n * token));
          }
        }};
  });
}

}  // namespace

void register_cache_kernels(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_cached_attention(table, isa, pool);
  register_cache_write(table);
}

}  // namespace tessera::cpu
