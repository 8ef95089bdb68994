#include "backends/cpu/kernels/matmul_onednn.h"

#include <algorithm>
#include <dnnl.hpp>
#include <functional>
#include <unordered_map>

#include "backends/cpu/kernels/matmul_packed.h"
#include "backends/cpu/kernels/matmul_tile.h"
#include "base/error.h"
#include "base/text.h"

// Of the GNU OpenMP runtime that oneDNN uses, whatever runtime the compiler would choose.
extern "C" void omp_set_num_threads(int threads);

namespace tessera::cpu {
namespace {

// Of 128, 256, 512 or all rows and 256, 512 or 1024 columns, the fastest that leaves work for
// several threads: geometric mean over forward, dX and dW of seven layer shapes in f32.
// Whole products are 5 % faster, tiles of 256 x 512 5 % and of 128 x 256 15 % slower.
constexpr MatmulTile kLargestTile = {512, 1024};
constexpr int64_t kAlignment = 64;

dnnl::memory::data_type onednn_type(DType d) {
  return d == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t ld,
                          bool transposed = false) {
  using Dims = dnnl::memory::dims;
  return {Dims{rows, columns}, onednn_type(dtype), transposed ? Dims{1, ld} : Dims{ld, 1}};
}

// The product of one tile shape.
struct TilePrimitive {
  dnnl::memory::desc a, b, c, bias, scratch;
  dnnl::matmul primitive;
  std::string name;  // oneDNN's, for example "gemm:jit"

  TilePrimitive(const MatmulProblem& p, int64_t rows, int64_t columns)
      : a(matrix(rows, p.k, p.a, p.lda, p.transpose_a)),
        b(matrix(p.k, columns, p.b, p.ldb, p.transpose_b)),
        c(matrix(rows, columns, p.c, p.ldc)),
        bias(p.bias ? matrix(1, columns, p.c, columns) : dnnl::memory::desc()) {
    dnnl::primitive_attr attributes;
    // The library's own scratchpad belongs to the thread that made the primitive. oneDNN 2.6 takes
    // its gemm:jit for this mode, on AMX too, which for bf16 is up to 1.3 times slower than its
    // brgemm.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, bias, c), attributes,
                                             cpu_engine());
    scratch = description.scratchpad_desc();
    name = description.impl_info_str();
    primitive = dnnl::matmul(description);
  }
};

class OneDnnMatmul final : public Matmul {
 public:
  OneDnnMatmul(const MatmulProblem& p, Isa isa)
      : Matmul(p), in_vectors_(make_vector_matmul(p, isa)) {
    const MatmulTile tile = matmul_tile(p.m, p.n, kLargestTile);
    tile_rows_ = std::min(p.m, tile.rows);
    tile_columns_ = std::min(p.n, tile.columns);
    // The team size is a per-thread setting, and oneDNN also plans for it when a primitive is made.
    omp_set_num_threads(1);
    const int64_t rows[] = {tile_rows_, p.m % tile_rows_};
    const int64_t columns[] = {tile_columns_, p.n % tile_columns_};
    for (int i = 0; i < 4; ++i) {
      if (rows[i / 2] == 0 || columns[i % 2] == 0) continue;
      primitives_[i] = std::make_unique<TilePrimitive>(p, rows[i / 2], columns[i % 2]);
      int64_t bytes = static_cast<int64_t>(primitives_[i]->scratch.get_size());
      scratch_bytes_ = std::max(scratch_bytes_, ceil_div(bytes, kAlignment) * kAlignment);
    }
  }

  // At least as much as our own product, which takes its place on machines with a wider instruction
  // set or without the library: a plan is the same on all of them.
  int64_t workspace_bytes(int threads) const override {
    return std::max(threads * scratch_bytes_, in_vectors_->workspace_bytes(threads));
  }

  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const void* bias, int64_t) const override {
    const MatmulProblem& p = problem();
    const int64_t row_tiles = ceil_div(p.m, tile_rows_);
    auto task = [&](int64_t tile, int thread) {
      omp_set_num_threads(1);
      run_tile({a, b, c, bias}, tile % row_tiles * tile_rows_, tile / row_tiles * tile_columns_,
               static_cast<char*>(workspace) + thread * scratch_bytes_);
    };
    pool.run(row_tiles * ceil_div(p.n, tile_columns_), std::ref(task));
  }

  std::string description() const override {
    return cat("onednn ", primitives_[0]->name, ", tiles ", tile_rows_, "x", tile_columns_);
  }

 private:
  struct Matrices {
    const void *a, *b;
    void* c;
    const void* bias;
  };
  void run_tile(const Matrices& of, int64_t row, int64_t column, void* scratch) const {
    const MatmulProblem& p = problem();
    const TilePrimitive& tile =
        *primitives_[(row + tile_rows_ > p.m ? 2 : 0) + (column + tile_columns_ > p.n ? 1 : 0)];
    auto memory = [](const dnnl::memory::desc& desc, const void* base, int64_t element,
                     DType dtype) {
      void* data = const_cast<char*>(static_cast<const char*>(base) + element * size_of(dtype));
      return dnnl::memory(desc, cpu_engine(), data);
    };
    thread_local dnnl::stream stream(cpu_engine());
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(tile.a, of.a, row * (p.transpose_a ? 1 : p.lda), p.a)},
        {DNNL_ARG_WEIGHTS, memory(tile.b, of.b, column * (p.transpose_b ? p.ldb : 1), p.b)},
        {DNNL_ARG_DST, memory(tile.c, of.c, row * p.ldc + column, p.c)},
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(tile.scratch, cpu_engine(), scratch)}};
    if (p.bias) arguments[DNNL_ARG_BIAS] = memory(tile.bias, of.bias, column, p.c);
    tile.primitive.execute(stream, arguments);
  }

  std::unique_ptr<const Matmul> in_vectors_;
  int64_t tile_rows_ = 0, tile_columns_ = 0, scratch_bytes_ = 0;
  std::unique_ptr<TilePrimitive> primitives_[4];  // whole, right edge, lower edge, corner
};

}  // namespace

std::unique_ptr<const Matmul> make_onednn_matmul(const MatmulProblem& p, Isa isa) {
  if (isa < default_isa() || p.m == 0 || p.n == 0 || p.k == 0) return nullptr;
  // Our own dW is 1.2 times as fast (geometric mean of seven shapes), 1.9 at a stride of 8192.
  if (p.a == DType::kF32 && p.transpose_a) return nullptr;
  if (p.a == DType::kBF16 && (isa != Isa::kAmx || (p.accumulate && p.c == DType::kBF16))) {
    return nullptr;
  }
  try {
    return std::make_unique<OneDnnMatmul>(p, isa);
  } catch (const dnnl::error& error) {
    throw DeviceError(cat("oneDNN cannot prepare a matrix product [", p.m, ", ", p.k, "] x [", p.k,
                          ", ", p.n, "]: ", error.what()));
  }
}

}  // namespace tessera::cpu
