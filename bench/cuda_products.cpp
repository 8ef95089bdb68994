// Algorithms of cublasLt for the products of a training step, timed on a GPU: the tuner that writes
// what the program chooses from (backends/cuda/product_choices.h).
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "backends/cuda/cuda_kernels.h"
#include "base/file.h"
#include "bench/cuda_timing.h"
#include "runtime/planned_program.h"

namespace tessera::bench {
namespace {

constexpr const char* kHelp = R"(Usage: cuda_products --out FILE [OPTIONS]

Times what cublasLt proposes for every product of a training step of a Llama on GPU 0, among the algorithms that add in
a fixed order, and writes the fastest of each to FILE; lines of other products, devices and versions stay. An algorithm
that gives other bits in a second run is left out.

  --size NAME        tiny, llama1b, llama3b: as in cuda_ops (default llama1b)
  --dtype bf16|f32   of compute (default bf16)
  --candidates N     algorithms a product, of the library's own list (default 32)
  --repeats N        launches of each that are timed (default 10)
)";

struct Settings : JobSettings {
  std::string out;
  int candidates = 32, repeats = 10;
};

// The products of all programs of a step, each once.
std::vector<ProductProblem> products_of(const Job& job, Device& device) {
  std::map<std::string, ProductProblem> problems;
  KernelTable table;
  register_kernels(
      table, device,
      [&](const ProductProblem& problem) -> std::optional<Product> {
        ProductChoices key;
        key.add({"", 1, problem});
        problems.emplace(key.to_text(), problem);
        return std::nullopt;
      },
      nullptr);
  const Programs programs = build_programs(model_builder(job.model), job.options);
  for (const Graph* program :
       {&programs.accumulate_first, &programs.accumulate, &programs.evaluate})
    if (!program->nodes().empty()) plan_program(*program, table);
  std::vector<ProductProblem> all;
  for (const auto& [key, problem] : problems)
    if (problem.m > 0 && problem.n > 0 && problem.k > 0) all.push_back(problem);
  return all;
}

class Tuner {
 public:
  Tuner(CudaBackend& backend, const Settings& settings)
      : products_(*backend.products()), device_(backend.device()), settings_(settings) {
    emulated_ = device_.driver().emulated();
    scratch_bytes_ = emulated_ ? 1024 : int64_t{256} << 20;
  }

  // The fastest; nothing where the library has none.
  std::optional<ProductChoice> tune(const ProductProblem& p) {
    std::vector<ProductChoice> candidates = products_.candidates(p, settings_.candidates);
    const auto guard = device_.lock();
    Buffers buffers(device_);
    // As aligned as the problem says, and no more.
    auto operand = [&](int64_t elements, DType dtype, int64_t alignment) {
      const int64_t size = size_of(dtype);
      const TensorType type{{elements + 256 / size}, dtype};
      return static_cast<std::byte*>(buffers.filled(type, 1)) + alignment;
    };
    c_bytes_ = p.m * p.ldc * size_of(p.result);
    const ProductArguments arguments{
        operand((p.transpose_a ? p.k : p.m) * p.lda, p.operands, p.align_a),
        operand((p.transpose_b ? p.n : p.k) * p.ldb, p.operands, p.align_b),
        operand(p.m * p.ldc, p.result, p.align_c), operand(p.n, p.operands, kPlacedAlignment),
        buffers.make(kLibraryWorkspaceBytes)};
    void* scratch = buffers.make(scratch_bytes_);
    void* kept_c = buffers.make(c_bytes_);
    device_.copy(kept_c, arguments.c, c_bytes_);
    std::optional<ProductChoice> best;
    for (ProductChoice& choice : candidates)
      choice.microseconds = time(products_.make(choice), arguments, scratch);
    const double first = candidates.empty() ? 0 : candidates[0].microseconds;
    std::ranges::stable_sort(candidates, {}, &ProductChoice::microseconds);
    for (const ProductChoice& choice : candidates) {
      const Product product = products_.make(choice);
      best = choice;
      best->first_microseconds = first;
      if (result(product, arguments, kept_c) == result(product, arguments, kept_c)) break;
      std::printf("  left out: an algorithm gives other bits in a second run\n");
      best.reset();
    }
    std::printf("%lld x %lld x %lld, %s%s: %zu candidates", static_cast<long long>(p.m),
                static_cast<long long>(p.n), static_cast<long long>(p.k), p.transpose_a ? "t" : "n",
                p.transpose_b ? "t" : "n", candidates.size());
    if (best && !emulated_)
      std::printf(", %.1f us; the first %.1f", best->microseconds, best->first_microseconds);
    std::printf("\n");
    return best;
  }

 private:
  std::string result(const Product& product, const ProductArguments& arguments, void* kept_c) {
    device_.copy(arguments.c, kept_c, c_bytes_);
    product.run(arguments);
    std::string bytes(static_cast<size_t>(c_bytes_), '\0');
    const Driver& driver = device_.driver();
    driver.call(driver.copy_to_host, static_cast<void*>(bytes.data()),
                reinterpret_cast<CUdeviceptr>(arguments.c), bytes.size(), device_.stream());
    device_.finish();
    return bytes;
  }

  // Median, in microseconds, with the second-level cache overwritten before every launch; 0 on an
  // emulated device.
  double time(const Product& product, const ProductArguments& arguments, void* scratch) {
    if (emulated_) return 0;
    return 1e6 * median_seconds(device_, scratch, scratch_bytes_, 0, settings_.repeats,
                                [&] { product.run(arguments); });
  }

  CublasLtProducts& products_;
  CudaDevice& device_;
  const Settings& settings_;
  bool emulated_ = false;
  int64_t scratch_bytes_ = 0, c_bytes_ = 0;
};

void run(const Settings& settings) {
  if (settings.out.empty()) throw UserError("--out FILE says where the choices go");
  CudaBackend backend({.graphs = false});
  std::printf("%s\n", backend.description().c_str());
  if (!backend.products()) throw UserError("there is no cublasLt whose algorithms could be timed");
  if (backend.device().driver().emulated())
    std::printf("EMULATED: nothing is timed, the first algorithm is taken\n");
  ProductChoices choices;
  if (std::filesystem::exists(settings.out))
    choices = ProductChoices::parse(read_file(settings.out), cat("'", settings.out, "'"));
  Tuner tuner(backend, settings);
  int64_t chosen = 0;
  const Job job = job_of(settings);
  for (const ProductProblem& problem : products_of(job, backend.device())) {
    if (auto choice = tuner.tune(problem)) {
      choices.add(std::move(*choice));
      ++chosen;
    }
  }
  write_file_atomic(settings.out, choices.to_text());
  std::printf("%lld products chosen, %lld in the file\n", static_cast<long long>(chosen),
              static_cast<long long>(choices.size()));
}

}  // namespace
}  // namespace tessera::bench

int main(int count, char** words) {
  using namespace tessera::bench;
  Settings settings;
  const auto take = [&](const std::string& name, const std::string& value) {
    if (name == "--out")
      settings.out = value;
    else if (name == "--candidates")
      settings.candidates = std::clamp(std::stoi(value), 1, 1000);
    else if (name == "--repeats")
      settings.repeats = std::max(1, std::stoi(value));
    else
      return settings.take(name, value);
    return true;
  };
  return benchmark_main("cuda_products", kHelp, {words, static_cast<size_t>(count)}, take, [&] {
    run(settings);
    return 0;
  });
}
