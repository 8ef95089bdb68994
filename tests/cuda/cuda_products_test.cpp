// Products by cublasLt on the emulated GPU: a problem has one algorithm, wherever its operands lie;
// long rows that are no multiple of 16 bytes are multiplied in parts; what a tuner chose is taken,
// and planned with; what is no such choice is refused.
#include <array>
#include <cmath>
#include <map>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/described_backend.h"
#include "backends/cuda/product_parts.h"
#include "ops/composite/cross_entropy.h"
#include "runtime/planned_program.h"
#include "tests/base/error_expectation.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/cuda/graph_run.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kBatch = 2, kLength = 16;

ProductProblem problem_of(int64_t m, int64_t n, int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_b = true,
          .operands = DType::kF32,
          .result = DType::kF32,
          .lda = k,
          .ldb = k,
          .ldc = n};
}

Programs tiny_training() {
  return build_programs(model_builder(tiny_model()), tiny_programs(kBatch, kLength, DType::kBF16));
}

// Every product of a training step, each once.
std::vector<ProductProblem> products_of(const Programs& programs) {
  DescribedDevice device;
  KernelTable table;
  std::map<std::string, ProductProblem> problems;
  register_kernels(
      table, device,
      [&](const ProductProblem& p) -> std::optional<Product> {
        ProductChoices key;
        key.add({"", 1, p});
        problems.emplace(key.to_text(), p);
        return std::nullopt;
      },
      nullptr);
  for (const Graph* graph :
       {&programs.accumulate_first, &programs.accumulate, &programs.apply, &programs.evaluate})
    plan_program(*graph, table);
  std::vector<ProductProblem> all;
  for (auto& [key, problem] : problems) all.push_back(problem);
  return all;
}

class CudaProducts : public CudaTest {
 protected:
  // a b for small numbers that need rounding, or for integers of -2 to 2, with operands so many
  // bytes behind where memory begins. What was in c is of that kind too.
  std::string multiply(CudaBackend& backend, const Product& product, const ProductProblem& p,
                       int64_t behind, bool integers = false) {
    CudaDevice& device = backend.device();
    const auto guard = device.lock();
    std::vector<DeviceBlock> blocks;
    auto operand = [&](int64_t elements) {
      std::vector<float> values;
      for (int64_t i = 0; i < elements; ++i) {
        const double u =
            random_uniform(3, static_cast<uint64_t>(elements), static_cast<uint64_t>(i));
        values.push_back(static_cast<float>(integers ? std::floor(5 * u) - 2 : u));
      }
      std::byte* place = blocks.emplace_back(device, elements * 4 + 256, "operand").data() + behind;
      device.driver().call(device.driver().copy_to_device, reinterpret_cast<CUdeviceptr>(place),
                           static_cast<const void*>(values.data()), values.size() * 4,
                           device.stream());
      device.finish();
      return place;
    };
    const int64_t c_elements = p.m * p.ldc;
    const ProductArguments arguments{
        operand((p.transpose_a ? p.k : p.m) * p.lda), operand((p.transpose_b ? p.n : p.k) * p.ldb),
        operand(c_elements), operand(p.n),
        blocks.emplace_back(device, kLibraryWorkspaceBytes, "workspace").data()};
    product.run(arguments);
    std::string bytes(static_cast<size_t>(c_elements * 4), '\0');
    device.driver().call(device.driver().copy_to_host, static_cast<void*>(bytes.data()),
                         reinterpret_cast<CUdeviceptr>(arguments.c), bytes.size(), device.stream());
    device.finish();
    return bytes;
  }
};

// The double proposes other algorithms, with other bits, for other alignments.
TEST_F(CudaProducts, HaveTheSameBitsWhereverTheirOperandsLie) {
  CudaBackend backend({});
  bool algorithms_differ = false;
  for (int64_t n = 40; n < 56; n += 4) {
    const ProductProblem p = problem_of(24, n, 200);
    const Product first = *backend.products()->make(p), second = *backend.products()->make(p);
    const std::string bits = multiply(backend, first, p, 0);
    EXPECT_EQ(multiply(backend, second, p, 64), bits);
    EXPECT_EQ(multiply(backend, first, p, 192), bits);
    ProductProblem less_aligned = p;
    less_aligned.align_a = less_aligned.align_b = less_aligned.align_c = 4;
    const Product other = *backend.products()->make(less_aligned);
    algorithms_differ |= multiply(backend, other, p, 4) != bits;
  }
  EXPECT_TRUE(algorithms_differ) << "this test cannot fail";
}

TEST_F(CudaProducts, RefuseOperandsThatAreLessAlignedThanTheirAlgorithm) {
  for (bool cublaslt : {true, false}) {
    CudaBackend backend({.cublaslt = cublaslt});
    ProductProblem p = problem_of(16, 16, 16);
    if (!cublaslt) p.operands = p.result = DType::kBF16;
    const Product product =
        cublaslt ? *backend.products()->make(p) : own_product(backend.device(), p);
    expect_contains(message_of<InternalError>([&] { multiply(backend, product, p, 32); }),
                    "operand a of a product is not a multiple of 64 bytes");
  }
}

// Sums of integers are exact in any order.
TEST_F(CudaProducts, OfLongRowsThatAreNoMultipleOf16BytesAreMadeInParts) {
  CudaBackend backend({});
  int64_t made = 0;
  const MakeProduct make = in_aligned_parts([&](const ProductProblem& problem) {
    ++made;
    return backend.products()->make(problem);
  });
  struct Layout {
    bool transpose_a, transpose_b;
    bool splits_m, splits_n, splits_k;
  };
  for (const Layout& layout : {Layout{false, false, false, true, true},
                               {false, true, false, true, true},
                               {true, false, true, true, false}}) {
    for (auto [m, n, k] : {std::array<int64_t, 3>{1029, 7, 9},
                           {5, 1035, 9},
                           {5, 7, 1041},
                           {5, 1035, 1041},
                           {1029, 1035, 9}}) {
      for (bool adds : {false, true}) {
        ProductProblem p{.m = m,
                         .n = n,
                         .k = k,
                         .transpose_a = layout.transpose_a,
                         .transpose_b = layout.transpose_b,
                         .operands = DType::kF32,
                         .result = DType::kF32,
                         .accumulate = adds,
                         .bias = layout.transpose_b};
        const auto row = [](int64_t elements) { return (elements + 7) / 8 * 8; };
        p.lda = row(p.transpose_a ? p.m : p.k);
        p.ldb = row(p.transpose_b ? p.k : p.n);
        p.ldc = row(p.n);
        SCOPED_TRACE(cat(m, " ", n, " ", k, " ", p.transpose_a, p.transpose_b, adds));
        made = 0;
        const std::optional<Product> product = make(p);
        ASSERT_TRUE(product);
        EXPECT_EQ(made, (layout.splits_m && m > 1000 ? 2 : 1) *
                            (layout.splits_n && n > 1000 ? 2 : 1) *
                            (layout.splits_k && k > 1000 ? 2 : 1));
        EXPECT_EQ(multiply(backend, *product, p, 0, true),
                  multiply(backend, own_product(backend.device(), p), p, 0, true));
      }
    }
  }
}

TEST_F(CudaProducts, HaveNoPartsWhereRowsAreAsTheyShouldBeOrShortOrBeginAnywhere) {
  const auto parts = [](int64_t n, int64_t ldc) {
    ProductProblem p = problem_of(2048, n, 768);
    p.ldc = ldc;
    return aligned_parts(p);
  };
  EXPECT_EQ(parts(50304, 50304).size(), 1u);
  EXPECT_EQ(parts(1023, 1024).size(), 1u);
  EXPECT_EQ(parts(50257, 50257).size(), 1u);
  ASSERT_EQ(parts(50257, 50264).size(), 2u);
  const ProductPart last = parts(50257, 50264)[1];
  EXPECT_EQ(last.problem.n, 1);
  EXPECT_EQ(last.b, 50256 * 768 * 4);
  EXPECT_EQ(last.c, 50256 * 4);
  EXPECT_EQ(last.problem.align_c, 64);
  EXPECT_EQ(parts(50265, 50272)[1].problem.align_c, 32);
  EXPECT_EQ(parts(50260, 50264).size(), 1u);  // f32
  ProductProblem of_bf16 = problem_of(2048, 50260, 768);
  of_bf16.operands = of_bf16.result = DType::kBF16;
  of_bf16.ldc = 50264;
  ASSERT_EQ(aligned_parts(of_bf16).size(), 2u);
  EXPECT_EQ(aligned_parts(of_bf16)[1].problem.n, 4);
  of_bf16.align_c = 8;
  EXPECT_EQ(aligned_parts(of_bf16).size(), 1u);
}

// In bf16 the gradient of x, which is added up in two parts, is a unit of the last place away.
TEST_F(CudaProducts, HeadsOfAnOddNumberOfClassesAreThoseOfOwnKernels) {
  const int64_t rows = 24, width = 16, classes = 1037;
  std::vector<std::vector<double>> values(5);
  for (int64_t i = 0; i < rows * width; ++i)
    values[0].push_back(static_cast<float>(
        BF16(static_cast<float>(random_uniform(1, 1, static_cast<uint64_t>(i)) - 0.5))));
  for (int64_t i = 0; i < classes * width; ++i)
    values[1].push_back(static_cast<float>(
        BF16(static_cast<float>(random_uniform(1, 2, static_cast<uint64_t>(i)) - 0.5))));
  for (int64_t i = 0; i < rows; ++i) values[2].push_back(static_cast<double>(classes - 1 - i));
  values[3] = {1.0 / static_cast<double>(rows)};
  values[4] = {0};
  Graph g;
  std::vector<Value> inputs;
  ref::Feeds feeds;
  const std::vector<TensorType> types{{{rows, width}, DType::kBF16},
                                      {{classes, width}, DType::kBF16},
                                      {{rows}, DType::kI32},
                                      {{}, DType::kF32},
                                      {{}, DType::kF32}};
  for (size_t i = 0; i < types.size(); ++i) {
    inputs.push_back(g.input(cat("x", i), InputKind::kArgument, types[i]));
    feeds[cat("x", i)] = {values[i]};
  }
  const std::vector<Value> results = g.add(std::make_shared<LinearCrossEntropyBackward>(), inputs);
  for (size_t k = 0; k < results.size(); ++k) g.output(cat("y", k), results[k]);
  CudaBackend parts({}), own({.cublaslt = false});
  const GraphResults got = run_graph(parts, g, feeds), want = run_graph(own, g, feeds);
  for (size_t k = 0; k < results.size(); ++k) {
    double largest = 0;
    for (double v : want.outputs[k].values) largest = std::max(largest, std::abs(v));
    const double bound = largest * (g.type(results[k]).dtype == DType::kBF16 ? 0x1p-7 : 1e-5);
    for (size_t i = 0; i < want.outputs[k].values.size(); ++i)
      ASSERT_NEAR(got.outputs[k].values[i], want.outputs[k].values[i], bound)
          << "result " << k << ", element " << i;
  }
}

// What addresses are multiples of follows from types, and holds in every program.
TEST_F(CudaProducts, AreAlignedAsThePlanSays) {
  EXPECT_EQ(alignment_of(0), 64);
  EXPECT_EQ(alignment_of(6), 2);
  EXPECT_EQ(alignment_of(48), 16);
  EXPECT_EQ(alignment_of(64 * 3), 64);
  EXPECT_EQ(alignment_of(int64_t{1} << 40), 64);
}

TEST_F(CudaProducts, TakeWhatWasMeasuredAndPlanWithIt) {
  const Programs programs = tiny_training();
  ProductChoices choices;
  std::string gpu;
  {
    CudaBackend backend({});
    gpu = choice_device(backend.device().facts().name);
    for (const ProductProblem& p : products_of(programs)) {
      const std::vector<ProductChoice> candidates = backend.products()->candidates(p, 8);
      ASSERT_GE(candidates.size(), 2u);
      choices.add(candidates[1]);
    }
  }
  EXPECT_GT(choices.size(), 5);
  EXPECT_EQ(gpu, "tessera_emulated_GPU");
  CudaBackend backend({.choices = ProductChoices::parse(choices.to_text(), "choices")});
  expect_contains(backend.description(), cat(" with ", choices.size(), " measured products"));
  Session session(tiny_training(), backend);
  DescribedBackend described(
      {.products = DescribedBackend::Products::kCublasLt, .gpu = gpu, .choices = choices});
  const Session planned(tiny_training(), described);
  session.allocate();
  EXPECT_EQ(planned.planned_memory().total(), session.allocated_bytes());
  EXPECT_EQ(planned.plan_hash(), session.plan_hash());
  int64_t measured = 0;
  for (size_t p = 0; p < session.compiled().size(); ++p) {
    const Executable &here = *session.compiled()[p].executable,
                     &there = *planned.compiled()[p].executable;
    for (size_t i = 0; i < here.graph().nodes().size(); ++i) {
      const bool taken = here.kernel(i).ends_with(", measured");
      EXPECT_EQ(taken, there.kernel(i).ends_with(", measured"));
      EXPECT_EQ(taken, here.kernel(i).starts_with("cublasLt"));
      measured += taken;
    }
  }
  EXPECT_GT(measured, 10);
  // And they multiply.
  ThreadPool pool(1);
  session.initialize(7, pool);
  TinyBatch batch(kBatch, kLength, 0);
  EXPECT_TRUE(session.step(std::vector{batch.view(), batch.view()}, 0.01, 1).ok);
}

TEST_F(CudaProducts, RefuseChoicesThatAreNone) {
  CudaBackend backend({});
  const ProductProblem p = problem_of(8, 16, 32);
  const std::vector<ProductChoice> candidates = backend.products()->candidates(p, 8);
  auto refused = [&](auto&& change, const char* part) {
    ProductChoice choice = candidates[0];
    for (const ProductChoice& one : candidates)
      if (one.workspace_bytes > choice.workspace_bytes) choice = one;
    change(choice);
    ProductChoices choices;
    choices.add(choice);
    const std::string error = message_of<UserError>([&] {
      CudaBackend given({.choices = choices});
      given.products()->make(choice.problem);
    });
    expect_contains(error, part);
    expect_contains(error, "8 16 32 32 32 16 64 64 64");  // its line
  };
  refused([](ProductChoice& choice) { choice.algorithm[4] ^= 2; }, "is no algorithm");
  refused([](ProductChoice& choice) { choice.algorithm = {}; }, "is no algorithm");
  refused([](ProductChoice& choice) { choice.workspace_bytes = 16; }, "takes a workspace of");
  // One of the double's that adds in no fixed order, though nobody proposed it.
  refused(
      [](ProductChoice& choice) {
        choice.algorithm[4] = 2;
        choice.algorithm[5] = kReductionSchemeInPlace;
        choice.algorithm[7] = 0;
        for (size_t i = 0; i < 7; ++i)
          choice.algorithm[7] = (choice.algorithm[7] ^ choice.algorithm[i]) * 0x100000001b3;
      },
      "adds in an order that is not fixed");
  const ProductProblem other = problem_of(8, 32, 32);
  const ProductChoice of_other = backend.products()->candidates(other, 1)[0];
  refused([&](ProductChoice& choice) { choice.algorithm = of_other.algorithm; },
          "cannot be used: CUBLAS_STATUS_INVALID_VALUE");
}

}  // namespace
}  // namespace tessera::cuda
