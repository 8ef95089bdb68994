// The double of cublasLt multiplies as cuBLAS defines it, and finds calls that it does not
// document.
#include <bit>
#include <cmath>

#include "backends/cuda/cublaslt_api.h"
#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

struct CublasLt {
  explicit CublasLt(EmulatedCuda& cuda) {
#define TESSERA_LOAD(result, name, member, parameters) cuda.load(#name, member);
    TESSERA_CUBLASLT_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
    EXPECT_EQ(create(&handle), 0);
  }
#define TESSERA_MEMBER(result, name, member, parameters) result(*member) parameters = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  cublasLtHandle handle = nullptr;
};

uint16_t bf16(float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); }
float widen(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }

// One product, d = alpha op(a) op(b) + beta d (+ bias), of 5 x 7 x 6, bf16 to f32, with gaps
// between columns; what a test spoils is spoiled before the call.
struct Product {
  explicit Product(uint64_t seed = 1) : cuda("checked", seed), lt(cuda) {
    for (size_t i = 0; i < 64; ++i) {
      of_a.push_back(bf16(static_cast<float>(i % 7) - 3));
      of_b.push_back(bf16(static_cast<float>(i % 5) - 1.5f));
      of_d.push_back(static_cast<float>(i));
    }
    a = cuda.upload(of_a, stream);
    b = cuda.upload(of_b, stream);
    d = cuda.upload(of_d, stream);
    bias = cuda.upload(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, stream);
    workspace = cuda.allocate<std::byte>(1 << 16);
  }
  // Layouts and description as they are by now; then asks the heuristic.
  cublasStatus choose() {
    lt.matmul_desc_create(&desc, compute, scale);
    for (const auto& [attribute, value] :
         {std::pair(kMatmulDescTransposeA, transpose_a), {kMatmulDescTransposeB, transpose_b}}) {
      const int32_t v = value;
      EXPECT_EQ(lt.matmul_desc_set_attribute(desc, attribute, &v, sizeof v), 0);
    }
    if (with_bias) {
      const uint32_t epilogue = kEpilogueBias;
      const int32_t bias_type = kCudaReal32F;
      lt.matmul_desc_set_attribute(desc, kMatmulDescEpilogue, &epilogue, sizeof epilogue);
      lt.matmul_desc_set_attribute(desc, kMatmulDescBiasPointer, &bias, sizeof bias);
      lt.matmul_desc_set_attribute(desc, kMatmulDescBiasDataType, &bias_type, sizeof bias_type);
    }
    lt.matrix_layout_create(&a_layout, type, transpose_a ? k : m, transpose_a ? m : k, lda);
    lt.matrix_layout_create(&b_layout, type, transpose_b ? n : k, transpose_b ? k : n, ldb);
    lt.matrix_layout_create(&d_layout, kCudaReal32F, m, n, ldd);
    cublasLtMatmulPreference preference = nullptr;
    lt.preference_create(&preference);
    const uint64_t most = 1 << 16;
    lt.preference_set_attribute(preference, kPreferenceMaxWorkspaceBytes, &most, sizeof most);
    for (int p = kPreferenceMinAlignmentA; p <= kPreferenceMinAlignmentD; ++p) {
      lt.preference_set_attribute(preference, p, &alignment, sizeof alignment);
    }
    int returned = 0;
    const cublasStatus status = lt.algo_get_heuristic(lt.handle, desc, a_layout, b_layout, d_layout,
                                                      d_layout, preference, 1, &chosen, &returned);
    EXPECT_EQ(returned, status == 0);
    return status;
  }
  cublasStatus multiply(float alpha, float beta) {
    return lt.matmul(lt.handle, desc, &alpha, a, a_layout, b, b_layout, &beta, d, d_layout, d,
                     d_layout, &chosen.algo, workspace, workspace_bytes, stream);
  }

  EmulatedCuda cuda;
  CublasLt lt;
  CUstream stream = cuda.make_stream();
  uint64_t m = 5, n = 7, k = 6;
  int64_t lda = 8, ldb = 8, ldd = 6;
  int compute = kCublasCompute32F, scale = kCudaReal32F, type = kCudaReal16BF;
  int32_t transpose_a = 0, transpose_b = 0;
  bool with_bias = false;
  uint32_t alignment = 16;
  size_t workspace_bytes = 1 << 16;
  std::vector<uint16_t> of_a, of_b;
  std::vector<float> of_d;
  uint16_t *a = nullptr, *b = nullptr;
  float *d = nullptr, *bias = nullptr;
  std::byte* workspace = nullptr;
  cublasLtMatmulDesc desc = nullptr;
  cublasLtMatrixLayout a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
  cublasLtMatmulHeuristicResult chosen{};
};

TEST(CublasLtDouble, MultipliesAllLayouts) {
  for (int layout = 0; layout < 8; ++layout) {
    Product p(static_cast<uint64_t>(layout + 1));
    p.transpose_a = layout & 1;
    p.transpose_b = layout >> 1 & 1;
    p.with_bias = layout >> 2 & 1;
    const float alpha = 0.5f, beta = p.with_bias ? 1.0f : 0.0f;
    ASSERT_EQ(p.choose(), 0);
    ASSERT_EQ(p.multiply(alpha, beta), 0);
    const auto result = p.cuda.download(p.d, 64, p.stream);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 7; ++j) {
        double sum = 0;
        for (size_t t = 0; t < 6; ++t) {
          sum += widen(p.of_a[p.transpose_a ? i * 8 + t : t * 8 + i]) *
                 widen(p.of_b[p.transpose_b ? t * 8 + j : j * 8 + t]);
        }
        const double expected =
            alpha * sum + beta * p.of_d[j * 6 + i] + (p.with_bias ? static_cast<double>(i) + 1 : 0);
        EXPECT_EQ(result[j * 6 + i], static_cast<float>(expected));
      }
      EXPECT_EQ(result[5], p.of_d[5]);  // between the columns
    }
  }
}

TEST(CublasLtDouble, FindsWhatIsNotDocumented) {
  struct Rule {
    const char* words;
    void (*before)(Product&);  // the heuristic
    void (*after)(Product&);
  };
  const auto nothing = [](Product&) {};
  const Rule rules[] = {
      {"the layouts are not those of a product", [](Product& p) { p.transpose_a = 1; },
       [](Product& p) { p.lt.matrix_layout_create(&p.a_layout, kCudaReal16BF, 5, 6, 8); }},
      {"a leading dimension is less than the rows", [](Product& p) { p.ldd = 4; }, nothing},
      {"A is not aligned as the heuristic was asked for", nothing, [](Product& p) { p.a += 1; }},
      {"C is not aligned as the heuristic was asked for", [](Product& p) { p.alignment = 256; },
       [](Product& p) { p.d += 4; }},
      {"the algorithm was chosen for another product", nothing,
       [](Product& p) { p.lt.matrix_layout_create(&p.a_layout, kCudaReal16BF, 5, 6, 6); }},
      {"types or an epilogue that it does not multiply", nothing,
       [](Product& p) { p.lt.matrix_layout_create(&p.a_layout, kCudaReal16F, 5, 6, 8); }},
      {"an algorithm that no heuristic gave", nothing, [](Product& p) { p.chosen = {}; }},
      {"there is no such layout", nothing,
       [](Product& p) { p.lt.matrix_layout_destroy(p.b_layout); }},
      {"there is no such handle", nothing, [](Product& p) { p.lt.destroy(p.lt.handle); }},
      {"D overlaps an operand", nothing,
       [](Product& p) { p.d = reinterpret_cast<float*>(p.a) + 4; }},
      {"a product of cublasLt: past the end of", nothing, [](Product& p) { p.b += 32; }},
      {"a product reads what nobody has written", nothing,
       [](Product& p) { p.b = p.cuda.allocate<uint16_t>(64); }},
      {"a bias is given and no epilogue adds it", nothing,
       [](Product& p) {
         p.lt.matmul_desc_set_attribute(p.desc, kMatmulDescBiasPointer, &p.bias, sizeof p.bias);
       }},
      {"an attribute of the wrong size", nothing, [](Product& p) {
         const uint64_t wide = 1;
         p.lt.matmul_desc_set_attribute(p.desc, kMatmulDescTransposeA, &wide, sizeof wide);
       }}};
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.words);
    Product p;
    rule.before(p);
    p.choose();
    rule.after(p);
    p.multiply(1, 0);
    p.cuda.stream_synchronize(p.stream);
    p.cuda.expect_found(rule.words);
  }
}

TEST(CublasLtDouble, WorkspacesAreWrittenAndHaveToBeThere) {
  // Whether an algorithm wants one is drawn.
  int wanted = 0;
  for (uint64_t seed = 1; seed < 12; ++seed) {
    Product p(seed);
    ASSERT_EQ(p.choose(), 0);
    p.workspace_bytes = 100;
    const cublasStatus status = p.multiply(1, 0);
    EXPECT_EQ(status == 0, p.chosen.workspace_bytes == 0);
    if (status != 0) p.cuda.expect_found("the workspace is smaller than the algorithm needs");
    p.workspace_bytes = 1 << 16;
    if (p.chosen.workspace_bytes) {
      p.workspace += 64;
      EXPECT_NE(p.multiply(1, 0), 0);
      p.cuda.expect_found("the workspace is not aligned to 256 bytes");
      p.workspace -= 64;
    }
    EXPECT_EQ(p.cuda.stream_synchronize(p.stream), 0);
    ASSERT_EQ(p.multiply(1, 0), 0);
    // Two streams at once must not share it.
    const CUstream first = p.stream;
    p.stream = p.cuda.make_stream();
    p.d = p.cuda.allocate<float>(64);
    ASSERT_EQ(p.multiply(1, 0), 0);
    p.cuda.stream_synchronize(p.stream);
    p.cuda.stream_synchronize(first);
    if (p.chosen.workspace_bytes) p.cuda.expect_found("order: product of cublasLt");
    wanted += p.chosen.workspace_bytes > 0;
  }
  EXPECT_GT(wanted, 0);
  EXPECT_LT(wanted, 11);
}

TEST(CublasLtDouble, TypesThatItMultiplies) {
  struct {
    int compute, scale, type;
    bool supported;
  } cases[] = {{kCublasCompute32F, kCudaReal32F, kCudaReal16BF, true},
               {kCublasCompute32F, kCudaReal32F, kCudaReal16F, true},
               {kCublasCompute32F, kCudaReal32F, kCudaReal32F, true},
               {kCublasCompute32F, kCudaReal32F, kCudaReal64F, false},
               {kCublasCompute64F, kCudaReal64F, kCudaReal32F, false},
               {kCublasCompute32F, kCudaReal64F, kCudaReal32F, false}};
  for (const auto& [compute, scale, type, supported] : cases) {
    Product p;
    p.compute = compute;
    p.scale = scale;
    p.type = type;
    EXPECT_EQ(p.choose(), supported ? kCublasSuccess : kCublasNotSupported);
  }
}

}  // namespace
}  // namespace tessera::cuda
